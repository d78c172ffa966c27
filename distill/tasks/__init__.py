"""One labelling task a file.

`async def label(question, context)` gives the records of one question; `Options` are the task's switches, and `needs(options)` names the
parts of the recipe that it works with. A task that labels something else than questions draws it in `rows(recipe)`.
"""
