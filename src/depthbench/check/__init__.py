"""The laws that every design must keep."""
