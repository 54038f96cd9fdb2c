"""Documentation of every design, made from the registry and from measurements."""
