"""One request: its server, its tries and its faults."""
