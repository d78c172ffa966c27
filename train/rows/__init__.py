"""From records to batches of ids and labels."""
