"""The commands of `refinery` that answer questions and inspect answers."""
