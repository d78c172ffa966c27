"""Learning from one's own searches: rounds of sampling, keeping what is right, training on it, and evaluating on validation questions."""
