"""One driver per peer of the labeling engine, each run by the interpreter of the virtual environment that has the peer.

`driver.py` is what that interpreter runs, and says what a driver is given and returns. It and the drivers need nothing of this project.
"""
