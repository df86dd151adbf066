"""Prometheus rules: loaded, checked, unit-tested, evaluated on the node, and delivered to receivers."""
