"""Learning from a model's own searches: rounds of sampling, keeping right answers, training, and evaluating on validation questions."""
