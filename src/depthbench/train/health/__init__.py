"""What is watched by depth while a model trains, and what is found in it."""
