"""One decoder per file: `Options` and `async def decode(question, session, options)`, which reads like the paper's algorithm."""
