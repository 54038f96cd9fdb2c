"""Runs as they go on, read from their folders and never written to."""
