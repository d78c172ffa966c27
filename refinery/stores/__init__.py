"""One reply store per file. A store makes paid replies and searches durable before a row uses them."""
