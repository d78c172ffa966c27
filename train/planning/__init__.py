"""What a run would do and hold, before it starts."""
