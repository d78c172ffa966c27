"""Plain reference decoders, with which `refinery bench infer` and the tests compare the engine."""
