"""The rows of an InfiniBand or RoCE port."""

from __future__ import annotations

from agent.model import Metric

ROWS: tuple[Metric, ...] = ()
