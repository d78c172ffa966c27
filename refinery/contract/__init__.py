"""The data that the stages exchange: records, control tokens, segments, formats and traces."""
