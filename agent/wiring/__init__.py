"""From the configuration to running parts: one file a part."""
