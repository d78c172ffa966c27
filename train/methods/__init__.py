"""How a task is learned: one file a method; `train/method.py` says what it declares."""
