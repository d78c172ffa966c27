"""The teacher: its replies, their cost, and where they are kept."""
