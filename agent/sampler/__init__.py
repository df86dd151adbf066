"""From what the sources send to the frozen snapshot: lanes, plausibility, history, presence, self-metrics."""
