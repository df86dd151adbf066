"""From the sources' messages to the frozen snapshot: lanes, plausibility, history, presence, self-metrics."""
