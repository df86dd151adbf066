"""The parts of `coldplate run`: the service, its sampling and rule loops, and their state."""
