"""Prometheus rules: read, checked, unit-tested, evaluated on the node, and told to whoever must know."""
