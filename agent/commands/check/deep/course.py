"""How far the measuring has come, by the lines that it writes. Reads no clock, and believes nothing senseless."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import msgspec

from agent.health.deep_findings import DeepStep
from agent.lib.wording import one_line

HANGING_SECONDS = 15.0
"""Seconds after which a step hangs: the first on a GPU makes its context and loads kernels, which takes one or two."""
OPENING_SECONDS = 30.0
"""The same for opening the driver: without persistence mode, a node of eight GPUs may take ten."""
ENDS = ("absent", "broken", "done")
OF_STEPS = ("begin", "value", "failed", "broken")
CONDEMNING = ("uncorrectable ecc", "hardware", "nvlink", "launch failure", "contained")
"""What is in the messages of CUDA's errors that a device has caused: cudaErrorECCUncorrectable,
cudaErrorHardwareStackError, cudaErrorNvlinkUncorrectable, cudaErrorLaunchFailure, cudaErrorContained."""


class CourseMessage(msgspec.Struct):
    """A line of what measures."""

    said: str
    step: int = -1
    value: float = 0.0
    text: str = ""


class Course:
    """What was heard. `since` is when anything was last heard, `values` are by the number of the step.

    `broken` is set where a device has caused an error, `why` where something was not measured for any other reason.
    """

    def __init__(self, steps: Sequence[DeepStep], gpus: int, at: float) -> None:
        self.steps = steps
        self.since = at
        self.stage = "start"
        self.library = ""
        self.number = ""
        self.values: dict[int, float] = {}
        self.broken = ""
        self.why = ""
        self._gpus = gpus
        self._step = -1

    def take(self, line: bytes, at: float) -> bool:
        """Take in a line; whether a step is over. What is no message of ours is passed over."""
        try:
            message = msgspec.json.decode(line, type=CourseMessage)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if message.said in OF_STEPS:
            if not 0 <= message.step < len(self.steps):
                return False
            self._step = message.step
        self.since, self.stage = at, message.said
        text = one_line(message.text, 300)
        if message.said == "absent":
            self.why = text
        elif message.said == "loaded":
            self.library = text
        elif message.said == "ready":
            self._open(text, message.value)
        elif message.said == "value" and isfinite(message.value) and message.value > 0:
            self.values[message.step] = message.value
        elif message.said in ("failed", "broken"):
            self._fail(text)
        return message.said in ("value", "failed")

    def hangs(self, at: float) -> bool:
        """Whether what it does takes longer than it does on a device that works."""
        patience = {"loaded": OPENING_SECONDS, "begin": HANGING_SECONDS}.get(self.stage)
        return patience is not None and at - self.since > patience

    def doing(self) -> str:
        """What it does, in words."""
        if self._step >= 0:
            return str(self.steps[self._step])
        return "the loading of PyTorch or CuPy" if self.stage == "start" else "the opening of the driver by CUDA"

    def _open(self, number: str, gpus: float) -> None:
        self.number = number
        if gpus != self._gpus:
            self.stage, self.why = "broken", f"{self.library} sees {gpus:g} of the {self._gpus} GPUs"

    def _fail(self, text: str) -> None:
        told = f"{self.doing()}: {text}"
        if self.stage == "broken" and any(each in text.lower() for each in CONDEMNING):
            self.broken = told
        else:
            self.why = told
