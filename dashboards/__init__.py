"""Grafana dashboards, generated from the catalogue. None is shipped in this version."""
