"""The names of the checks of the active test, for a command line that needs nothing else of it."""

DEEP_NAMES = ("deep", "deep-memory", "deep-product", "deep-host-copy", "deep-peer-copy")
