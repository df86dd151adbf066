"""Grafana dashboards, written with grafanalib in boards/ and committed as JSON in generated/.

A panel takes its title, unit, legend, meaning and thresholds from the metric catalogue and the rule files; what a
board adds is the question, and what good looks like. Nothing here talks to Grafana or to Prometheus.
"""
