"""How a snapshot leaves the node. Exporters read the last snapshot and touch no device."""
