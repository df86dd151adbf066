"""The exporters, which serve and send snapshots. They read the last snapshot and touch no device."""
