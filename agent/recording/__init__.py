"""What a driver answered, written down without what identifies the machine, and played again in its place."""
