"""The kubelet's last answer, kept for a while after it stops answering.

Only the kubelet knows a pod that holds a GPU without a process. The pods survive its restart, which takes
seconds, or minutes during an upgrade; without its answer their GPUs would look free meanwhile. For a moment after its
start it answers without pods: it lists those received from the API server, and does not wait for them
(List in pkg/kubelet/apis/podresources/server_v1.go).
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.backends.jobs.pods import PodDevice

KEEP_SECONDS = 180.0
"""Seconds for which the kubelet's last answer counts."""


class Recall:
    """The last answer, and when it was given in monotonic seconds."""

    def __init__(self) -> None:
        self._pods: tuple[PodDevice, ...] = ()
        self._at = 0.0
        self._doubted = False

    def keep(self, pods: Sequence[PodDevice], mono: float) -> None:
        self._pods, self._at, self._doubted = tuple(pods), mono, False

    def doubt(self) -> None:
        """The kubelet went away or was restarted: its first answer may be incomplete."""
        self._doubted = True

    def early(self, pods: Sequence[PodDevice], mono: float) -> bool:
        """Whether it names no pods because it has not been told of them yet."""
        return self._doubted and not pods and bool(self.within(mono))

    def within(self, mono: float) -> Sequence[PodDevice]:
        """The pods of the last answer, unless it is too old by now."""
        if mono - self._at > KEEP_SECONDS:
            self._pods = ()
        return self._pods

    def promise(self, mono: float) -> str:
        """What is shown meanwhile, as the end of a message."""
        return f"; the last known pods are shown for up to {KEEP_SECONDS:.0f} s" if self.within(mono) else ""
