"""Unit tests of rules, in promtool's format and with promtool's results."""
