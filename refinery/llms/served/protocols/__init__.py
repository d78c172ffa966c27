"""One file per chat protocol: where its requests go, what they contain, and how its replies are read."""
