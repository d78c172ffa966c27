"""The teacher: its requests, replies and cost."""
