"""The page of `refinery view --output`: what it holds (`content.py`), how it is written (`write.py`), and its template, style and scripts.

What fills it stands in each stage's `page.py`, since only a stage knows its rows.
"""
