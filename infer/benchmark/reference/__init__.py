"""Decoders written plainly, that the engine is held against by `refinery bench infer` and by the tests."""
