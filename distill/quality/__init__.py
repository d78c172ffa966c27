"""Measured label quality: finished runs against annotated rows, with what the labels cost."""
