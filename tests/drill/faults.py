"""Every fault of the drill."""

from __future__ import annotations

from collections.abc import Sequence

from tests.drill.clock_faults import CLOCK_FAULTS
from tests.drill.driver_faults import GPU_FAULTS, WORKER_FAULTS
from tests.drill.fault import Fault
from tests.drill.file_faults import FILE_FAULTS
from tests.drill.outsider_faults import OUTSIDERS
from tests.drill.rule_faults import CONFIG_FAULTS, RULE_FAULTS
from tests.drill.shortage_faults import LIMIT_FAULTS
from tests.drill.state_faults import STATE_FAULTS

PLAIN: Sequence[Fault] = (
    Fault("nothing", "nothing", lambda drill: None, lambda drill: None),
    *GPU_FAULTS,
    *WORKER_FAULTS,
    *FILE_FAULTS,
    *RULE_FAULTS,
    *CONFIG_FAULTS,
    *OUTSIDERS,
    *STATE_FAULTS,
    *CLOCK_FAULTS,
    *LIMIT_FAULTS,
)  # fmt: skip
"""For one daemon, one after the other."""
