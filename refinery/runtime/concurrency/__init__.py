"""Coroutines, batches and processes."""
