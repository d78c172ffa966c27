"""Labels as people look at them: before the run, as a page, as figures."""
