"""One reply store a file: where paid replies and searches are kept, durable before a row uses them."""
