"""The commands of `refinery` that judge labels."""
