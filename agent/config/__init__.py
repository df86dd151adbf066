"""The configuration file: its schema, how it is read, and its units."""
