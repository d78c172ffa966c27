"""What passes between the stages: records, control tokens, segments, formats and traces."""
