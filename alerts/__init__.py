"""Prometheus rules: read, checked, evaluated and unit-tested. The daemon of this version does not evaluate any yet."""
