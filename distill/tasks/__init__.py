"""One labeling task per file.

`async def label(question, context)` returns the records of one question, `Options` are the task's options, and `LABEL_TASK` declares
both; `distill/label_task.py` says what else it may declare.
"""
