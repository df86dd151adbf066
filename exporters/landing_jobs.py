"""The part of the page at `/` about jobs: their owners, and the GPUs that they hold."""

from __future__ import annotations

from collections.abc import Sequence

from exporters.landing_gpus import GpuRow, name_of
from exporters.landing_readings import Gathered
from exporters.markup import ABSENT, TABLE_END, Tone, age, cell, cut, numbers, row, table_head

MAX_ROWS = 100
_HEADS = ("Job", "Name", "User", "Account, partition", "GPUs", "Running for", "Energy so far")
_Key = tuple[str, str]


def held(devices: Sequence[GpuRow]) -> dict[_Key, list[GpuRow]]:
    """The GPUs that each job holds, wholly or in part."""
    jobs: dict[_Key, list[GpuRow]] = {}
    for device in devices:
        for key in {_key(job) for job in device.jobs}:
            jobs.setdefault(key, []).append(device)
    return jobs


def section(found: Gathered, devices: Sequence[GpuRow], now: float | None) -> str:
    """The table; empty if no job holds a GPU."""
    jobs = held(devices)
    if not jobs:
        return ""
    facts = {_key(dict(each.labels)): dict(each.labels) for each in found.of("coldplate_job_info")}
    for device in devices:
        for job in device.jobs:
            facts.setdefault(_key(job), job)
    starts = {_key(dict(each.labels)): each.value for each in found.of("coldplate_job_start_timestamp_seconds")}
    energies = {_key(dict(each.labels)): each.value for each in found.of("coldplate_job_energy_joules_total")}
    rows = [_row(facts[key], jobs[key], starts.get(key), energies.get(key), now) for key in sorted(jobs)[:MAX_ROWS]]
    more = f"<p>and {len(jobs) - MAX_ROWS} more.</p>\n" if len(jobs) > MAX_ROWS else ""
    return table_head("Jobs", _HEADS, "cards jobs") + "".join(rows) + TABLE_END + more


def _row(
    facts: dict[str, str], devices: Sequence[GpuRow], start: float | None, joules: float | None, now: float | None
) -> str:
    place = ", ".join(filter(None, (facts.get("account", ""), facts.get("partition", ""))))
    indexes = [int(each.gpu.index) for each in devices if each.gpu.index.isascii() and each.gpu.index.isdigit()]
    cells = (
        cell("Job", f"<b>{cut(name_of(facts))}</b> <small>{cut(facts.get('scheduler', ''))}</small>", "first"),
        cell("Name", cut(facts.get("name", ""))),
        cell("User", cut(facts.get("user", ""))),
        cell("Account, partition", cut(place)),
        cell("GPUs", numbers(indexes) or str(len(devices))),
        cell("Running for", ABSENT if start is None or now is None else age(now - start)),
        cell("Energy so far", ABSENT if joules is None else f"{joules / 3.6e6:.2f} kWh"),
    )
    return row(Tone.CALM, "".join(cells))


def _key(labels: dict[str, str]) -> _Key:
    return labels.get("scheduler", ""), labels.get("job_id", "")
