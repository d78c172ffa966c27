"""Steps of decoders that can run alone: one file for each decoder. Their inputs and grading are in `kinds`."""
