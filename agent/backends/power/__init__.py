"""Power of the node, from whatever measures it at the inlet: Redfish, IPMI, or the firmware's power meters.

The sources of `order` are tried in turn, and the first that answers is exposed, with its name as the label `source`:
one number, never a sum of two that measure the same. RAPL's energy and the power of parts have metrics of their own.

`estimate` in the order does not belong to this backend: the sampler computes it from the GPUs' power. Measured on nodes
with eight H100: node = 1.1 x GPUs + 1.5 to 1.9 kW, with a residual of about 1 kW.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agent.backends.file_reader_pool import FileReaderPool
from agent.backends.polled_source import PolledSource, Spawn, spawn_thread
from agent.backends.power.hwmon import HwmonPower
from agent.backends.power.ipmi import IpmiPower, open_transport
from agent.backends.power.rapl import RaplEnergy
from agent.backends.protocol import AbsentError, BackendSample, DeviceError, join_samples
from agent.backends.registration import BackendContext
from agent.broker.questions import IpmiDevice
from agent.catalogue.node import NODE_POWER
from agent.config.schema import BackendsConfig
from agent.lib.http_target import HttpTarget
from agent.lib.logs import LogOnce
from agent.model import Gap, Instant, Lane, Node, Reading, Reason, Series

if TYPE_CHECKING:
    from agent.backends.power.redfish_power import RedfishPower

    PowerSource = HwmonPower | IpmiPower | RedfishPower

__all__ = ["PowerBackend", "bmc_of", "make_backend"]

TIMEOUT_SECONDS = 1.0
"""Seconds to wait for a file: a meter may go through the firmware."""


def make_backend(context: BackendContext) -> PowerBackend | None:
    """Return the node's power, unless no source is configured or its GPUs are not its own. Raises ConfigError."""
    config = context.config.backends
    if not context.has_own_hardware or not set(config.power) - {"estimate"}:
        return None
    return PowerBackend(config.power, str(context.sysfs), redfish=_redfish(context))


def _redfish(context: BackendContext) -> RedfishPower | None:
    config = context.config.backends
    target = bmc_of(config)
    if target is None or config.redfish is None:
        return None
    from agent.backends.power.redfish_power import RedfishPower  # only where a management controller is configured

    return RedfishPower(target, config.redfish.chassis, context.mono)


def bmc_of(config: BackendsConfig) -> HttpTarget | None:
    """Return the BMC to ask, if one is configured. Raises ConfigError."""
    if config.redfish is None or "redfish" not in config.power:
        return None
    from agent.backends.redfish_service import make_target

    return make_target(config.redfish, "backends.redfish")


MOST_WATTS = 1e6


def plausible_watts(source: PowerSource) -> float:
    """Return what it answers. Raises as it does, and DeviceError where it cannot be: this code needs power to run.

    Some controllers answer 0 when they do not measure.
    """
    watts = source.watts()
    if not 0 < watts < MOST_WATTS:
        raise DeviceError(Reason.IMPLAUSIBLE, f"reported {watts:g} W for a running node")
    return watts


def _run(job: Callable[[], None]) -> None:
    """Ask a source that costs nothing without a thread."""
    job()


log = logging.getLogger("coldplate.power")


class PowerBackend:
    """Node power from the first source that answers, and the power and energy of measured parts."""

    name = "power"
    lanes = frozenset({Lane.FAST})
    shortest = 1.0

    def __init__(
        self,
        order: Sequence[str],
        sysfs: str = "/sys",
        redfish: RedfishPower | None = None,
        ipmi: Callable[[], IpmiDevice] = open_transport,
        spawn: Spawn = spawn_thread,
    ) -> None:
        """`order` names sources; those that do not exist are skipped. `spawn` runs what may take long."""
        self._pool = FileReaderPool(self.name, TIMEOUT_SECONDS)
        hwmon = HwmonPower(sysfs, self._pool)
        rapl = RaplEnergy(sysfs, self._pool)
        sources: dict[str, PowerSource] = {"ipmi": IpmiPower(ipmi), "hwmon": hwmon}
        if redfish is not None:
            sources["redfish"] = redfish
        names = [name for name in dict.fromkeys(order) if name in sources]
        self._paced = [
            PolledSource(sources[name], partial(plausible_watts, sources[name]), _run if name == "hwmon" else spawn)
            for name in names
        ]
        self._series = {name: Series(NODE_POWER, Node(), (("source", name),)) for name in names}
        # Reading the parts also finds the node's meter, which is read only if no source before it answers.
        self._parts = [hwmon.parts] if "hwmon" in names else []
        if "rapl" in order:
            self._parts.append(rapl.read)
        self._once = LogOnce(log)
        self._rapl_absence = f"no RAPL domain {rapl.pattern}" if "rapl" in order else ""

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - the protocol's signature
        """Return the node's power and its parts. Raises AbsentError when this node has none of the sources."""
        parts = join_samples([read(now) for read in self._parts])
        readings, gaps, calls = [*parts.readings], [*parts.gaps], parts.calls
        preferred: list[PolledSource[float]] = []
        winner = None
        for paced in self._paced:
            calls += paced.poll(now.mono)
            if isinstance(paced.latest, float):
                winner = paced.source.name
                readings.append(Reading(self._series[winner], paced.latest))
                break
            preferred.append(paced)
        # Why sources did not answer: all of them if none did, else those that were configured by name.
        gaps += [
            Gap(NODE_POWER, Node(), paced.latest.reason, f"{paced.source.name}: {paced.latest.detail}")
            for paced in preferred
            if isinstance(paced.latest, DeviceError) and (winner is None or paced.source.configured)
        ]
        self._tell_denied(gaps, readings)
        absences = [str(paced.latest) for paced in self._paced if isinstance(paced.latest, AbsentError)]
        if not readings and not gaps and len(absences) == len(self._paced):
            raise AbsentError("; ".join(filter(None, [*absences, self._rapl_absence])))
        awaited = any(paced.awaited for paced in preferred)
        return BackendSample(readings, gaps, calls=calls, awaited=awaited, left_out=parts.left_out)

    def _tell_denied(self, gaps: Sequence[Gap], readings: Sequence[Reading]) -> None:
        """Log reads that lack a permission, by metric: the counters of RAPL's many domains are refused together."""
        denied = {gap.metric.name: gap.detail for gap in reversed(gaps) if gap.reason is Reason.DENIED}
        for name, detail in denied.items():
            self._once.problem(name, "%s", detail, facts={"missing": name})
        for name in {reading.series.metric.name for reading in readings} - denied.keys():
            self._once.over(name, "source recovered: %s", name)

    def close(self) -> None:
        for paced in self._paced:
            paced.close()
        self._pool.close()
