"""What `coldplate run` is made of: the service, its sampling and rule loops, and what they keep."""
