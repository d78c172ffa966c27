"""The commands of `refinery` that answer questions and look at answers."""
