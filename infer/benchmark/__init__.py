"""What `refinery bench infer` measures."""
