"""What labeling tasks share."""
