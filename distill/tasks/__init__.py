"""One labelling task a file.

`async def label(question, context)` gives the records of one question, `Options` are the task's switches, and `LABEL_TASK` declares both:
`distill/label_task.py` says what else it may.
"""
