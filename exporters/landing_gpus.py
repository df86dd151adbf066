"""The part of the page at `/` about GPUs: a row for each, those in trouble first, with what slows them down.

Firing alerts show what is bad; the findings beside them are what can be seen at this moment, before a rule's `for` has
passed. Reasons for low clocks are those of the driver; those that are normal are shown without colour.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from agent.health.device_states import LIMIT, POWER, throttle_verdict
from agent.health.seen_node import CLOCKS, SeenGpu
from agent.health.verdicts import verdict_of
from agent.model import Entity
from exporters import landing_alerts
from exporters.markup import (
    ABSENT,
    TABLE_END,
    TONES,
    Tone,
    badge,
    cell,
    cut,
    escape,
    quantity,
    row,
    span,
    table_head,
)

_HEADS = ("GPU", "State", "Busy", "Power", "Core", "HBM", "Memory", "SM clock", "Throttled by", "NVLinks", "Job")
_NUMERIC = frozenset(_HEADS[2:8])


def section(all_devices: Sequence[SeenGpu], served: Container[str], lines: Mapping[Entity, str]) -> Iterator[str]:
    """Yield the table, those in trouble first, a few rows at a time.

    `served` are the alerts whose runbooks the agent has, `lines` the last minutes of GPUs as drawings.
    """
    models = sorted({device.facts.get("model", "") for device in all_devices} - {""})
    title = f"GPUs <small>{escape(', '.join(models))}</small>"
    yield table_head(title, _HEADS, "cards gpus", _NUMERIC)
    for device in sorted(all_devices, key=lambda each: min(TONES[each.verdict], Tone.CALM)):
        yield _rows(device, served, lines.get(device.gpu, ""))
    yield TABLE_END


def _rows(device: SeenGpu, served: Container[str], line: str) -> str:
    values = device.values
    clock, highest = (values.get(name) for name in CLOCKS)
    shown = (
        cell("GPU", f"<b>{escape(device.gpu.index)}</b>", "first"),
        cell("State", badge(TONES[device.verdict], device.word)),
        cell("Busy", f"{line}{quantity(device.busy, 100.0, '%')}", "n"),
        cell("Power", _of(values, POWER, LIMIT, 1.0, "W"), "n"),
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
    why = "".join(f"<li>{span(TONES[each.verdict], cut(each.text))}</li>" for each in device.findings)
    why += "".join(
        f"<li>{badge(TONES[verdict_of(each)], 'alert')} {landing_alerts.link(each, served)}</li>"
        for each in device.alerts
    )
    reasons = [f'<td class="why" colspan="{len(_HEADS)}"><ul>{why}</ul></td>'] if why else []
    return row(TONES[device.verdict], "".join(shown), *reasons)


def _of(values: Mapping[str, float], name: str, most: str, factor: float, unit: str) -> str:
    return quantity(values.get(name), factor, unit, values.get(most))


def _throttled(device: SeenGpu) -> str:
    if not device.up:
        return ABSENT
    shown = [span(TONES[throttle_verdict(each)], escape(each)) for each in device.throttles]
    return ", ".join(shown) or "nothing"


def _links(device: SeenGpu) -> str:
    all_links = device.links_up + len(device.links_down)
    if all_links == 0:
        return ABSENT
    text = f"{device.links_up} of {all_links} up"
    return span(Tone.BAD, text) if device.links_down and device.is_linked else text


def _jobs(device: SeenGpu) -> str:
    if len(device.jobs) > 1:
        return f"{len(device.jobs)} jobs"
    return "".join(f"{cut(name_of(each))} <small>{cut(each.get('user', ''))}</small>" for each in device.jobs) or "none"


def name_of(job: Mapping[str, str]) -> str:
    """Return the name of a job for people: its pod, else its number."""
    pod = job.get("pod", "")
    return f"{job.get('namespace', '')}/{pod}" if pod else job.get("job_id", "")
