"""From the configuration to running parts: one file for each part."""
