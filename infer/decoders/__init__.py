"""One decoder a file: `Options` (its switches) and `async def decode(question, tools, options)`, which reads like the paper."""
