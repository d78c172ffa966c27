"""Parts that all trainers share: arguments, the loss, sums, and evaluation by use."""
