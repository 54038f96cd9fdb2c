"""Training of one trial: loop, optimizer, schedule, checkpoints, health."""
