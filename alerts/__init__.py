"""The rules engine: Prometheus rules, evaluated on the node. None is shipped in this version."""
