"""Labels out of decoders' trees."""
