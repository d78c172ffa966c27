"""One labelling task a file: `async def label(question, bench)` gives the records of one question, and `NEEDS` names its parts."""
