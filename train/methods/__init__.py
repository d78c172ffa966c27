"""How a task is learned: one file a method; `base` says what it declares."""
