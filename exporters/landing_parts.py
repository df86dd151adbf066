"""The sections of the page at `/` about ports, those in trouble first, and about jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.model import IbPort
from exporters.landing_gpus import GpuRow, name_of
from exporters.landing_readings import PORT_UP, Gathered
from exporters.markup import ABSENT, TABLE_END, Tone, age, badge, cell, cut, escape, numbers, row, span, table_head

_FABRIC_HEADS = ("Port", "State", "Rate", "Went down", "Link", "Adapter")
_NUMERIC = ("Rate", "Went down")
PORT_STATES = {1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "ActiveDefer"}
PHYSICAL_STATES = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "Training",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "PhyTest",
}
"""The kernel's words: include/rdma/ib_verbs.h and drivers/infiniband/core/sysfs.c of Linux."""
DISABLED = 3
_PHYSICAL_ID = "physical_state_id"
_VALUES = ("rate_bytes_per_second", "link_down_events_total", "state_id", _PHYSICAL_ID)
BELOW_RATE = 0.95
"""Share of the usual rate, as in the rule InfinibandRateDegraded."""


def ports(found: Gathered) -> dict[IbPort, bool]:
    """Return the ports that report whether they are up, and those that do not answer, as down."""
    silent = {entity: False for entity in found.silent if isinstance(entity, IbPort)}
    return silent | {each.entity: each.value == 1 for each in found.of(PORT_UP) if isinstance(each.entity, IbPort)}


def fabric_section(found: Gathered) -> str:
    """Return the table; empty on a node without ports."""
    known = ports(found)
    if not known:
        return ""
    values = {name: found.by_entity(f"coldplate_infiniband_{name}") for name in _VALUES}
    infos = {each.entity: dict(each.labels) for each in found.of("coldplate_infiniband_info")}
    rates = sorted(values["rate_bytes_per_second"].values())
    usual = rates[len(rates) // 2] if rates else 0.0
    shown = []
    for port, up in known.items():
        facts = {name: each.get(port) for name, each in values.items()}
        shown.append(_port_row(port, up, port in found.silent, facts, info=infos.get(port, {}), usual=usual))
    shown.sort(key=lambda each: each[0])
    return (
        table_head("InfiniBand", _FABRIC_HEADS, "cards ports", _NUMERIC)
        + "".join(markup for _, markup in shown)
        + TABLE_END
    )


def _port_row(
    port: IbPort, up: bool, silent: bool, values: Mapping[str, float | None], *, info: Mapping[str, str], usual: float
) -> tuple[tuple[object, ...], str]:
    """Return the sort key, and the row. `usual` is the median rate of the node's ports, in bytes per second."""
    rate, downs, physical = (values[name] for name in ("rate_bytes_per_second", "link_down_events_total", _PHYSICAL_ID))
    slow = up and rate is not None and rate < BELOW_RATE * usual
    asleep = physical == DISABLED  # somebody switched it off
    tone = Tone.GOOD if up and not slow else Tone.WARN if up else Tone.CALM if asleep else Tone.BAD
    word = "slow" if slow else "up" if up else "silent" if silent else "off" if asleep else "down"
    words = [_word(PORT_STATES, values["state_id"]), _word(PHYSICAL_STATES, physical)]
    adapter = " ".join(filter(None, (info.get("hca_type", ""), info.get("link_layer", ""))))
    cells = (
        cell("Port", f"<b>{escape(port.device)}/{escape(port.port)}</b>", "first"),
        cell("State", badge(tone, word)),
        cell("Rate", span(tone if slow else Tone.CALM, ABSENT if rate is None else f"{rate * 8e-9:.0f} Gb/s"), "n"),
        cell("Went down", ABSENT if downs is None else f"{downs:.0f} times" if downs != 1 else "once", "n"),
        cell("Link", ", ".join(filter(None, words)) or ABSENT),
        cell("Adapter", cut(adapter)),
    )
    place = (min(tone, Tone.CALM), len(port.device), port.device, port.port)
    return place, row(tone, "".join(cells))


def _word(words: dict[int, str], code: float | None) -> str:
    return "" if code is None else words.get(int(code), f"{code:.0f}")


MAX_ROWS = 100
_JOB_HEADS = ("Job", "Name", "User", "Account, partition", "GPUs", "Running for", "Energy so far")
_Key = tuple[str, str]


def held(devices: Sequence[GpuRow]) -> dict[_Key, list[GpuRow]]:
    """Return the GPUs that each job holds, wholly or in part."""
    jobs: dict[_Key, list[GpuRow]] = {}
    for device in devices:
        for key in {_key(job) for job in device.jobs}:
            jobs.setdefault(key, []).append(device)
    return jobs


def jobs_section(found: Gathered, devices: Sequence[GpuRow], now: float | None) -> str:
    """Return the table; empty if no job holds a GPU."""
    jobs = held(devices)
    if not jobs:
        return ""
    facts = {_key(dict(each.labels)): dict(each.labels) for each in found.of("coldplate_job_info")}
    for device in devices:
        for job in device.jobs:
            facts.setdefault(_key(job), job)
    starts = {_key(dict(each.labels)): each.value for each in found.of("coldplate_job_start_timestamp_seconds")}
    energies = {_key(dict(each.labels)): each.value for each in found.of("coldplate_job_energy_joules_total")}
    rows = [_job_row(facts[key], jobs[key], starts.get(key), energies.get(key), now) for key in sorted(jobs)[:MAX_ROWS]]
    more = f"<p>and {len(jobs) - MAX_ROWS} more.</p>\n" if len(jobs) > MAX_ROWS else ""
    return table_head("Jobs", _JOB_HEADS, "cards jobs") + "".join(rows) + TABLE_END + more


def _job_row(
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
