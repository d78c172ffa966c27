"""What every trainer shares: arguments, the loss, sums, and evaluation by use."""
