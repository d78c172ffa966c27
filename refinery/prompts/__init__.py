"""Every prompt a student sees, in training and at inference, as one jinja file each."""
