"""Limits of a worker's messages: far above the largest node, far below what would hurt the main process.

The largest node has 72 GPUs, each with 18 NVLinks that offer every type of error, and MIG on all.
That is 28,000 series, each of which costs the main process 2.5 KB from the pipe to the page. Anything
beyond these limits is garbage.
"""

from __future__ import annotations

MAX_LINE = 256 * 2**10
"""Bytes of a message. The longest is a layout of a GPU with all its links: 60 KB."""
CHANNELS = 80
SERIES = 30_000
"""Of all layouts together."""
SERIES_OF_LANE = 1024
GAPS = 8192
"""Of all channels together."""
GAPS_OF_LANE = 512
PROCESSES = 4096
"""On one GPU."""
EVENTS = 1024
"""XID errors in one message."""
CALLS = 1_000_000
"""Driver calls of one sample."""
LINKS = 64
"""NVLinks of one GPU: those of 2026 have 18."""
PORTS = 64
FACTS = 16
"""Facts about a GPU beside its slot, serial and model."""

NAME = 64
"""Characters of a key, an index, a slot, the name of a port or of a fact."""
LABEL = 256
"""Characters of a label's value."""
TEXT = 512
"""Characters of the detail of a reason, or of the kernel's text about an XID."""
DURATION_SECONDS = 1e6
"""Seconds that a sample may have taken."""
CODE = 2**31
"""XIDs are below this: NVIDIA's catalogue ends at some 170."""
PID = 2**32
