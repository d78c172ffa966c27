"""What retrievers share when they search: batches, the cache, encoders and the HTTP contract."""
