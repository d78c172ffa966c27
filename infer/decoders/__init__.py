"""One decoder a file: `Options` (its switches) and `async def decode(question, session, options)`, which reads like the paper."""
