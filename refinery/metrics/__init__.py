"""Answer metrics, named by the reference they equal."""
