"""What labelling tasks share."""
