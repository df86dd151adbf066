"""The dashboards, each a file that grafanalib's own `generate-dashboards` can read."""
