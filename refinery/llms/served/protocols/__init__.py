"""One chat protocol a file: where its requests go, what they look like, and what its replies hold."""
