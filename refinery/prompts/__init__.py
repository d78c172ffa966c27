"""Every prompt as one jinja file each: those of teachers, of students, and of the decoders."""
