"""What a run would do and how much memory it needs, before it starts."""
