"""The pages of `refinery view --output`: their content (`content.py`), how one is written (`write.py`), its template, style and scripts.

Each stage's `page.py` fills its page, because only the stage knows its rows. `project.py` writes the pages of all runs in a folder, and an
index of them.
"""
