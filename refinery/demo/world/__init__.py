"""The embedded world: its entities, and the questions and passages about them."""
