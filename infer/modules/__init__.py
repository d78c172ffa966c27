"""Steps of decoders that can run alone: one file for each decoder, named like it, and in `kinds` what such steps are given and how they are
graded.
"""
