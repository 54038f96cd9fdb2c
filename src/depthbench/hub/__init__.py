"""Models of other packages, read and written in their formats."""
