"""What the output may look like where it goes."""

from __future__ import annotations

import os
from typing import TextIO


def takes_colour(stream: TextIO) -> bool:
    """Whether this is a terminal that shows colours, and whose user has not refused them (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "dumb")
