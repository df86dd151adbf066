"""Compares a snapshot of a node with the expectations of its model, and returns findings."""
