"""The part of the page at `/` about GPUs: a row for each, those in trouble first, with what slows them down.

Firing alerts show what is bad; the page adds what can be seen at this moment, before a rule's `for` has passed.
Reasons for low clocks are those of the driver; two of them are normal, and shown without colour.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.catalogue.xid_triage import called
from agent.model import Alert, Entity, Gap, Gpu, NvLink, Reason
from exporters import landing_alerts
from exporters.landing_readings import UP, Gathered
from exporters.markup import (
    ABSENT,
    TABLE_END,
    Tone,
    age,
    badge,
    cell,
    cut,
    escape,
    numbers,
    quantity,
    row,
    span,
    table_head,
)

THROTTLES = {
    "hw_thermal_slowdown": (Tone.BAD, "the hardware halves its clocks because of heat"),
    "hw_power_brake": (Tone.BAD, "power brake by the node's power supply"),
    "hw_slowdown": (Tone.WARN, "the hardware slows it down because of heat or power"),
    "sw_thermal_slowdown": (Tone.WARN, "the driver lowers its clocks because of heat"),
    "sync_boost": (Tone.CALM, ""),
    "application_clocks": (Tone.CALM, ""),
    "display_clocks": (Tone.CALM, ""),
    "sw_power_cap": (Tone.CALM, ""),
    "gpu_idle": (Tone.CALM, ""),
}
"""What a reason for low clocks means; those not listed are normal, or intended."""
_UMBRELLA = "hw_slowdown"
"""Also stands for heat or brake, which have reasons of their own if the GPU reports them: a separate state."""

BUSY = 0.7
BEHIND = 0.5
"""As in the rules of imbalance: how far below the busiest GPU of its job, if that one is busy."""
WAITS = 0.35
"""Share of the power limit: a GPU that is busy below it is waiting for others, as in the rules of imbalance."""
LOW_CLOCK = 0.75
HOT = 5.0
"""Degrees left to the GPU's own slowdown threshold, as in the rule GpuHot."""
MEMORY_HOT = 95.0
"""As in the rule GpuHot, sensor memory."""
RECENT_SECONDS = 3600.0
"""Seconds for which an XID is shown."""
_ENOUGH = 500
"""Links that are examined without a break: about a millisecond."""
_ENOUGH_GPUS = 8
"""GPUs that are examined without a break: about a millisecond."""
_HEADS = ("GPU", "State", "Busy", "Power", "Core", "HBM", "Memory", "SM clock", "Throttled by", "NVLinks", "Job")
_NUMERIC = frozenset(_HEADS[2:8])


class Finding(NamedTuple):
    """Something that holds a GPU back or makes it suspect, in one word and in a sentence."""

    tone: Tone
    word: str
    text: str


@dataclass(slots=True)
class GpuRow:
    """A GPU as the page shows it: values by metric name in base units; missing ones are absent."""

    gpu: Gpu
    facts: dict[str, str] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    throttles: list[str] = field(default_factory=list)
    links_up: int = 0
    links_down: list[int] = field(default_factory=list)
    xids: list[tuple[float, str]] = field(default_factory=list)
    jobs: list[dict[str, str]] = field(default_factory=list)
    action: str = ""
    silence: Gap | None = None
    alerts: list[Alert] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)  # the worst first

    @property
    def is_paused(self) -> bool:
        """Whether `coldplate pause` has released the driver: that the GPU is not read says nothing about it."""
        return self.silence is not None and self.silence.reason is Reason.PAUSED

    @property
    def up(self) -> bool:
        return self.values.get(UP) == 1

    @property
    def busy(self) -> float | None:
        return self.values.get("coldplate_gpu_utilization_ratio")

    @property
    def tone(self) -> Tone:
        worst = min((each.tone for each in self.findings), default=Tone.GOOD)
        return min([worst, *map(landing_alerts.tone_of, self.alerts)])

    @property
    def word(self) -> str:
        if self.findings:
            return self.findings[0].word
        if self.alerts:
            return "alert"
        return "idle" if "gpu_idle" in self.throttles else "ok"


_MARGIN = "coldplate_gpu_temperature_margin_celsius"
_PLAIN = (
    UP, "coldplate_gpu_sample_age_seconds", "coldplate_gpu_utilization_ratio", "coldplate_gpu_power_watts",
    "coldplate_gpu_power_limit_watts", "coldplate_gpu_power_limit_default_watts", "coldplate_gpu_temperature_celsius",
    "coldplate_gpu_memory_temperature_celsius", "coldplate_gpu_memory_used_bytes", "coldplate_gpu_memory_total_bytes",
    "coldplate_gpu_pcie_link_width", "coldplate_gpu_pcie_link_width_max", "coldplate_gpu_row_remap_pending",
    "coldplate_gpu_row_remap_failure", _MARGIN,
)  # fmt: skip
_SM = ("coldplate_gpu_clock_hertz", "coldplate_gpu_clock_limit_hertz")


def devices(found: Gathered) -> Generator[str, None, list[GpuRow]]:
    """Yield the GPUs of the snapshot, by index, without alerts and findings.

    It yields empty texts often, as pauses: a node may have 1,296 NVLinks.
    """
    made: dict[Entity, GpuRow] = {}
    for name in (*_PLAIN, *_SM):
        for reading in found.of(name):
            if isinstance(reading.entity, Gpu) and (name not in _SM or ("domain", "sm") in reading.labels):
                made.setdefault(reading.entity, GpuRow(reading.entity)).values[name] = reading.value
    for reading in found.of("coldplate_gpu_info"):
        if isinstance(reading.entity, Gpu):
            made.setdefault(reading.entity, GpuRow(reading.entity)).facts = dict(reading.labels)
    for device in made.values():
        device.silence = found.silent.get(device.gpu)
    yield ""
    yield from _add_links(found, made)
    _add_states(found, made)
    yield ""
    _add_jobs(found, made)
    return sorted(made.values(), key=lambda each: (len(each.gpu.index), each.gpu.index, each.gpu.uuid))


def _add_links(found: Gathered, made: Mapping[Entity, GpuRow]) -> Iterator[str]:
    for count, reading in enumerate(found.of("coldplate_nvlink_up")):
        link = reading.entity
        if isinstance(link, NvLink) and (device := made.get(link.gpu)) is not None:
            if reading.value == 1:
                device.links_up += 1
            else:
                device.links_down.append(link.link)
        if count % _ENOUGH == 0:
            yield ""


def _add_states(found: Gathered, made: Mapping[Entity, GpuRow]) -> None:
    for reading in found.of("coldplate_gpu_throttle_active"):
        if reading.value == 1 and (device := made.get(reading.entity)) is not None:
            device.throttles.append(dict(reading.labels).get("reason", ""))
    for reading in found.of("coldplate_gpu_hw_slowdown_active"):
        if reading.value == 1 and (device := made.get(reading.entity)) is not None:
            device.throttles.append(_UMBRELLA)
    for reading in found.of("coldplate_gpu_xid_last_timestamp_seconds"):
        if (device := made.get(reading.entity)) is not None:
            device.xids.append((reading.value, dict(reading.labels).get("xid", "")))
    for reading in found.of("coldplate_gpu_recovery_action"):
        action = dict(reading.labels).get("action", "")
        if reading.value == 1 and action != "none" and (device := made.get(reading.entity)) is not None:
            device.action = action


def _add_jobs(found: Gathered, made: Mapping[Entity, GpuRow]) -> None:
    for name in ("coldplate_gpu_job_info", "coldplate_gpu_shared_job_info"):
        for reading in found.of(name):
            labels = dict(reading.labels)
            if labels.get("shared") != "true" and (device := made.get(reading.entity)) is not None:
                device.jobs.append(labels)


def examine(all_devices: list[GpuRow], overview: landing_alerts.Overview | None, now: float | None) -> Iterator[str]:
    """Add what is wrong with each GPU at a moment in wall seconds, and which alerts fire for it.

    It yields empty texts often, as pauses.
    """
    busiest: dict[tuple[str, str], float] = {}
    for device in all_devices:
        job = _only_job(device)
        if job is not None and device.busy is not None:
            busiest[job] = max(busiest.get(job, 0.0), device.busy)
    for count, device in enumerate(all_devices):
        if count % _ENOUGH_GPUS == 0:
            yield ""
        device.alerts = [] if overview is None else overview.of_gpu.get(device.gpu, [])
        device.findings = sorted(_findings(device, busiest, now), key=lambda each: each.tone)


def _only_job(device: GpuRow) -> tuple[str, str] | None:
    """Return the job that has the GPU to itself."""
    if len(device.jobs) != 1 or device.jobs[0].get("mig", "0") != "0":
        return None
    return device.jobs[0].get("scheduler", ""), device.jobs[0].get("job_id", "")


def _findings(device: GpuRow, busiest: Mapping[tuple[str, str], float], now: float | None) -> Iterator[Finding]:
    if not device.up:
        yield _silent(device)
    if device.action:
        yield Finding(Tone.BAD, "reset", f"the driver requests {device.action.replace('_', ' ')}")
    if device.values.get("coldplate_gpu_row_remap_failure") == 1:
        yield Finding(Tone.BAD, "memory", "a row remap failed: the GPU must be replaced")
    if device.values.get("coldplate_gpu_row_remap_pending") == 1:
        yield Finding(Tone.WARN, "memory", "a row remap is pending until a reset of the GPU")
    if device.links_down:
        text = f"NVLink {numbers(device.links_down)} down"
        yield Finding(Tone.BAD, "link down", text)
    yield from _slowness(device, busiest)
    for wall, xid in sorted(device.xids, reverse=True):
        if now is not None and now - wall <= RECENT_SECONDS:
            yield Finding(Tone.WARN, "XID", f"XID {called(xid)}, {age(now - wall)} ago")


def _silent(device: GpuRow) -> Finding:
    gap, values = device.silence, device.values
    if device.is_paused:
        return Finding(Tone.WARN, "paused", f"paused: {gap.detail}" if gap is not None and gap.detail else "paused")
    word = "lost" if gap is not None and gap.reason is Reason.LOST else "no answer"
    detail = "" if gap is None else gap.detail
    parts = [detail if detail.startswith(word) else f"{word}: {detail}" if detail else word]
    since = values.get("coldplate_gpu_sample_age_seconds")
    if since is not None:
        parts.append(f"last sample {age(since)} ago")
    parts += [f"{name} {device.facts[name]}" for name in ("slot", "serial") if device.facts.get(name)]
    return Finding(Tone.BAD, word, "; ".join(parts))


def _slowness(device: GpuRow, busiest: Mapping[tuple[str, str], float]) -> Iterator[Finding]:
    values, busy, throttled = device.values, device.busy, False
    for reason in device.throttles:
        tone, words = THROTTLES.get(reason, (Tone.WARN, reason))
        if words and not (reason == _UMBRELLA and len({*device.throttles} & _EXPLICIT) > 0):
            throttled = True
            yield Finding(tone, "throttled", f"{words} ({reason})")
    margin, memory = values.get(_MARGIN), values.get("coldplate_gpu_memory_temperature_celsius")
    if margin is not None and margin <= HOT:
        yield Finding(Tone.WARN, "hot", f"{margin:.0f} °C below its slowdown threshold")
    if memory is not None and memory >= MEMORY_HOT:
        yield Finding(Tone.WARN, "hot", f"its memory is at {memory:.0f} °C")
    width, lanes = (values.get(f"coldplate_gpu_pcie_link_width{most}") for most in ("", "_max"))
    if width is not None and lanes is not None and width < lanes:
        yield Finding(Tone.WARN, "PCIe", f"PCIe runs with {width:.0f} of {lanes:.0f} lanes")
    limit, default = (values.get(f"coldplate_gpu_power_limit{which}_watts") for which in ("", "_default"))
    if limit is not None and default is not None and limit < default:
        yield Finding(Tone.CALM, "power limit", f"power limit set to {limit:.0f} of {default:.0f} W")
    if busy is None:
        return
    job = _only_job(device)
    most = busiest.get(job, 0.0) if job is not None else 0.0
    if most >= BUSY and busy < most - BEHIND:
        yield Finding(Tone.WARN, "behind", f"{busy:.0%} busy while another GPU of its job is {most:.0%} busy")
    power = values.get("coldplate_gpu_power_watts")
    if busy >= BUSY and power is not None and limit is not None and not throttled:
        if power < WAITS * limit:
            share = power / limit
            yield Finding(Tone.WARN, "waits", f"busy at {share:.0%} of its power limit: waiting for other GPUs")
        elif (clock := values.get(_SM[0])) is not None and clock < LOW_CLOCK * values.get(_SM[1], 0.0):
            yield Finding(Tone.WARN, "slow", f"its clock is at {clock / values[_SM[1]]:.0%} of the maximum")


_EXPLICIT = {"hw_thermal_slowdown", "hw_power_brake"}


def section(all_devices: list[GpuRow], served: Container[str], lines: Mapping[Entity, str]) -> Iterator[str]:
    """Yield the table, those in trouble first, a few rows at a time.

    `served` are the alerts whose runbooks the agent has, `lines` the last minutes of GPUs as drawings.
    """
    models = sorted({device.facts.get("model", "") for device in all_devices} - {""})
    title = f"GPUs <small>{escape(', '.join(models))}</small>"
    yield table_head(title, _HEADS, "cards gpus", _NUMERIC)
    for device in sorted(all_devices, key=lambda each: min(each.tone, Tone.CALM)):
        yield _rows(device, served, lines.get(device.gpu, ""))
    yield TABLE_END


def _rows(device: GpuRow, served: Container[str], line: str) -> str:
    values = device.values
    clock, highest = (values.get(name) for name in _SM)
    shown = (
        cell("GPU", f"<b>{escape(device.gpu.index)}</b>", "first"),
        cell("State", badge(device.tone, device.word)),
        cell("Busy", f"{line}{quantity(device.busy, 100.0, '%')}", "n"),
        cell("Power", _of(values, "coldplate_gpu_power_watts", "coldplate_gpu_power_limit_watts", 1.0, "W"), "n"),
        cell("Core", quantity(values.get("coldplate_gpu_temperature_celsius"), 1.0, "°C"), "n"),
        cell("HBM", quantity(values.get("coldplate_gpu_memory_temperature_celsius"), 1.0, "°C"), "n"),
        cell(
            "Memory",
            _of(values, "coldplate_gpu_memory_used_bytes", "coldplate_gpu_memory_total_bytes", 2.0**-30, "GiB"),
            "n",
        ),
        cell("SM clock", quantity(clock, 1e-9, "GHz", highest, 2), "n"),
        cell("Throttled by", _throttled(device)),
        cell("NVLinks", _links(device)),
        cell("Job", _jobs(device)),
    )
    why = "".join(f"<li>{span(each.tone, cut(each.text))}</li>" for each in device.findings)
    why += "".join(
        f"<li>{badge(landing_alerts.tone_of(each), 'alert')} {landing_alerts.link(each, served)}</li>"
        for each in device.alerts
    )
    reasons = [f'<td class="why" colspan="{len(_HEADS)}"><ul>{why}</ul></td>'] if why else []
    return row(device.tone, "".join(shown), *reasons)


def _of(values: Mapping[str, float], name: str, most: str, factor: float, unit: str) -> str:
    return quantity(values.get(name), factor, unit, values.get(most))


def _throttled(device: GpuRow) -> str:
    if not device.up:
        return ABSENT
    shown = [span(THROTTLES.get(each, (Tone.WARN, ""))[0], escape(each)) for each in device.throttles]
    return ", ".join(shown) or "nothing"


def _links(device: GpuRow) -> str:
    all_links = device.links_up + len(device.links_down)
    if all_links == 0:
        return ABSENT
    text = f"{device.links_up} of {all_links} up"
    return span(Tone.BAD, text) if device.links_down else text


def _jobs(device: GpuRow) -> str:
    if len(device.jobs) > 1:
        return f"{len(device.jobs)} jobs"
    return "".join(f"{cut(name_of(each))} <small>{cut(each.get('user', ''))}</small>" for each in device.jobs) or "none"


def name_of(job: Mapping[str, str]) -> str:
    """Return the name of a job for people: its pod, else its number."""
    pod = job.get("pod", "")
    return f"{job.get('namespace', '')}/{pod}" if pod else job.get("job_id", "")
