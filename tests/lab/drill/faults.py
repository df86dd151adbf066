"""Every fault of the drill."""

from __future__ import annotations

from collections.abc import Sequence

from tests.lab.drill.clock_faults import CLOCK_FAULTS
from tests.lab.drill.driver_faults import GPU_FAULTS, WORKER_FAULTS
from tests.lab.drill.fault import Fault
from tests.lab.drill.file_faults import FILE_FAULTS
from tests.lab.drill.outsider_faults import OUTSIDERS
from tests.lab.drill.rule_faults import CONFIG_FAULTS, RULE_FAULTS
from tests.lab.drill.shortage_faults import LIMIT_FAULTS
from tests.lab.drill.state_faults import STATE_FAULTS

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
