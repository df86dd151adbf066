"""What protects the pages: TLS, passwords and headers, by a file in the exporter-toolkit's format."""
