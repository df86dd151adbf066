"""Protects the pages by TLS, passwords and headers, from a file in the exporter-toolkit's format."""
