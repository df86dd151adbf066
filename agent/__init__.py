"""coldplate's node agent: samples the devices of one node and keeps a frozen snapshot of them."""

__version__ = "0.1.0"
