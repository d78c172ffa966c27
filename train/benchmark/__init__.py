"""`refinery bench train`: supervised tokens per second of packed rows beside padded ones and beside TRL as it ships."""
