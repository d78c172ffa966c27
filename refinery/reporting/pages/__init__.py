"""The page of `refinery view --output`: its content (`content.py`), how it is written (`write.py`), its template, style and scripts.

Each stage's `page.py` fills it, because only the stage knows its rows.
"""
