"""One driver per peer of the labeling engine, each run by the interpreter of the virtual environment that has the peer.

That interpreter runs `driver.py`, which documents a driver's arguments and result. It and the drivers import nothing from this project.
"""
