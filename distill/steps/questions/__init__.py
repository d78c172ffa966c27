"""Steps of writing questions from passages."""
