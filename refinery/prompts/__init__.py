"""Every prompt that a model is given, as one jinja file each: a teacher's, a student's, and those of the decoders."""
