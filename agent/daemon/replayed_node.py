"""A node whose readings come from a recording: takes the sampler's place in the sampling loop."""

import logging
from collections.abc import Sequence

from agent.backends.replay import FrameShifter, RecordingPlayer
from agent.catalogue import BY_NAME
from agent.model import BackendReport, Frame, Gpu, GpuIdentity, Instant, Layout, Metric, Node, Outcome, Series, Snapshot
from agent.recording.file_records import RecordingError
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings

log = logging.getLogger("coldplate.replay")

NAME = "replay"
GPU_INFO = BY_NAME["coldplate_gpu_info"]
REPLAY_INFO = BY_NAME["coldplate_replay_info"]


class ReplayedNode(Sampler):
    """Shows recorded snapshots instead of making them. `node` and `began` say of whom and of when."""

    def __init__(self, settings: Settings, player: RecordingPlayer, node: str, began: str) -> None:
        super().__init__(settings, Inventory(None), NAME)
        self._player = player
        self._presenter = FrameShifter()
        labels = (("node", node), ("recorded", began))
        self._info = Frame(Layout((Series(REPLAY_INFO, Node(), labels),)), (1.0,))
        self._pass = 0
        self._frames: Sequence[Frame] = ()
        self._reported_layouts: tuple[Layout, ...] = ()
        self._failed = ""

    def snapshot(self, now: Instant, facts: LoopFacts, own: Sequence[Frame] = ()) -> Snapshot:
        """Return the recorded snapshot of this moment, with the running agent's own metrics."""
        del facts  # those of the recorded agent are shown
        self._sequence += 1
        recorded = self._recorded(now)
        if recorded is None:
            detail = self._failed or ("the recording is over" if self._player.over else "the recording has a hole here")
            report = BackendReport(NAME, Outcome.FAILED, 0.0, detail)
            return Snapshot(self._sequence, now, (self._info, *own), (report,))
        if self._player.passes != self._pass:
            self._pass = self._player.passes
            self._presenter.another_pass(now.wall - recorded.at.wall)
        self._leave_out(own)
        self._frames = tuple(map(self._presenter.frame, recorded.frames))
        return Snapshot(self._sequence, now, (*self._frames, self._info, *own), recorded.reports)

    def close(self) -> None:
        self._player.close()

    @property
    def identities(self) -> list[GpuIdentity]:
        infos = [series for layout, _ in self._frames for series in layout.series if series.metric is GPU_INFO]
        return [_identity(series, series.entity) for series in infos if isinstance(series.entity, Gpu)]

    def _recorded(self, now: Instant) -> Snapshot | None:
        if self._failed:
            return None
        try:
            return self._player.at(now)
        except RecordingError as error:
            self._failed = str(error)
            log.error("replay failed: %s; no more snapshots", error)
            return None

    def _leave_out(self, own: Sequence[Frame]) -> None:
        layouts = tuple(frame.layout for frame in own)
        if layouts != self._reported_layouts:
            self._reported_layouts = layouts
            metrics: set[Metric] = {series.metric for layout in layouts for series in layout.series}
            self._presenter.leave_out(metrics)


def _identity(info: Series, gpu: Gpu) -> GpuIdentity:
    labels = dict(info.labels)
    return GpuIdentity(gpu, labels.get("slot", ""), labels.get("serial", ""), labels.get("model", ""))
