"""Documents read by their structure: one file per format, and `read.py`, which finds the format of a file."""
