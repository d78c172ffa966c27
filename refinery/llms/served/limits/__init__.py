"""How fast a server may be asked."""
