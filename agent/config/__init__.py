"""The configuration file: its schema, its reader, and its units."""
