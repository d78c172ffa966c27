"""Steps of decoders that can run alone: one file for each decoder, named like it. The inputs and the grading of such steps are in `kinds`."""
