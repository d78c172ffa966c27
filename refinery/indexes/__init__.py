"""An index as a user has it: built, brought up to date, measured and searched."""
