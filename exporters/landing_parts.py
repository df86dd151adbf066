"""Write the tables of the page at `/`: GPUs, those in trouble first, with what slows them down; ports; jobs.

The conditions that name a device stand in its row, pending ones as pending, and the worst that fires colours it.
Reasons for low clocks are those of the driver; those that are intended are shown in small letters.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec import Struct, field

from agent.health.conditions import DeviceConditions, phase_text
from agent.health.device_facts import INTENDED, PortFacts, throttle_word
from agent.health.gpu_findings import LIMIT
from agent.health.seen_node import CLOCKS, ECC_ERRORS, POWER, SeenGpu, SeenNode
from agent.lib.wording import age, short_numbers
from agent.model import Alert, Entity
from exporters import landing_alerts, markup
from exporters.headlines import tone_of
from exporters.markup import ABSENT, TABLE_END, Tone, badge, cell, cut, escape, quantity, row, table_head

_GPU_HEADS = ("GPU", "State", "Busy", "Power", "Core", "HBM", "Memory", "SM clock", "Throttled by", "NVLinks",
              "ECC errors", "Job")  # fmt: skip
_GPU_NUMERIC = frozenset(_GPU_HEADS[2:8])
_MEMORY, _MEMORY_MAX = "coldplate_gpu_memory_used_bytes", "coldplate_gpu_memory_total_bytes"


def gpus_section(
    all_devices: Sequence[SeenGpu], served: Container[str], lines: Mapping[Entity, str], now: float | None
) -> Iterator[str]:
    """Yield the table, those in trouble first, a few rows at a time; `now` in wall seconds.

    `served` are the alerts whose runbooks the agent has, `lines` the last minutes of GPUs as drawings.
    """
    models = sorted({device.facts.get("model", "") for device in all_devices} - {""})
    drivers = sorted({device.facts.get("driver_version", "") for device in all_devices} - {""})
    about = [*models, *(f"driver {version}" for version in drivers)]
    title = f"GPUs <small>{escape(', '.join(about))}</small>"
    yield table_head(title, _GPU_HEADS, "cards gpus", _GPU_NUMERIC)
    for device in sorted(all_devices, key=_trouble):
        yield _rows(device, served, lines.get(device.gpu, ""), now)
    yield TABLE_END


def gpu_tone(device: SeenGpu) -> Tone:
    """Return the tone of the worst condition; without any, good only if it is read and the rules were evaluated."""
    is_known = device.up and device.is_known and device.is_judged
    quiet = Tone.GOOD if is_known else Tone.UNKNOWN
    if device.is_paused:
        quiet = Tone.CALM
    return min(map(tone_of, device.conditions), default=quiet)


def _trouble(device: SeenGpu) -> tuple[Tone, bool]:
    return min(gpu_tone(device), Tone.CALM), device.up and not device.conditions


def _rows(device: SeenGpu, served: Container[str], line: str, now: float | None) -> str:
    values, tone = device.values.get, gpu_tone(device)
    cells = (
        cell("GPU", f"<b>{escape(device.gpu.index)}</b>", "first"),
        cell("State", badge(tone, device.shown_word or ABSENT)),
        cell("Busy", f"{line}{quantity(device.busy, 100.0, '%')}", "n"),
        cell("Power", quantity(values(POWER), 1.0, "W", values(LIMIT)), "n"),
        cell("Core", quantity(values("coldplate_gpu_temperature_celsius"), 1.0, "°C"), "n"),
        cell("HBM", quantity(values("coldplate_gpu_memory_temperature_celsius"), 1.0, "°C"), "n"),
        cell("Memory", quantity(values(_MEMORY), 2.0**-30, "GiB", values(_MEMORY_MAX)), "n"),
        cell("SM clock", quantity(values(CLOCKS[0]), 1e-9, "GHz", values(CLOCKS[1]), 2), "n"),
        cell("Throttled by", _throttled(device)),
        cell("NVLinks", _links(device)),
        cell("ECC errors", _ecc_errors(device) or ABSENT),
        cell("Job", _jobs(device)),
    )
    items = "".join(_reason(condition, served, now) for condition in device.conditions)
    if device.silence_text:
        items += f"<li>{cut(device.silence_text)}</li>"
    reasons = [f'<td class="why" colspan="{len(_GPU_HEADS)}"><ul>{items}</ul></td>'] if items else []
    return row(tone, "".join(cells), *reasons)


def _reason(condition: Alert, served: Container[str], now: float | None) -> str:
    """Return a condition in the row of its device: how far it is, its runbook, and its summary."""
    summary = condition.annotations.get("summary", "")
    cause = f", effect of {cut(condition.inhibited_by)}" if condition.inhibited_by else ""
    return (
        f"<li>{badge(tone_of(condition), phase_text(condition, now))} {landing_alerts.link(condition, served)}"
        f"{cause}{f': {cut(summary)}' if summary else ''}</li>"
    )


def _throttled(device: SeenGpu) -> str:
    """Return what lowers its clocks: what is normal, such as the power cap of a busy GPU, in small letters."""
    if not device.up or not device.has_throttle_readings:
        return ABSENT
    return ", ".join(map(_throttle, device.throttles)) or "nothing"


def _throttle(reason: str) -> str:
    word = markup.snake(throttle_word(reason))
    return f"<small>{word}</small>" if reason in INTENDED else word


def _links(device: SeenGpu) -> str:
    if not device.links:
        return ABSENT
    return f"{device.links_up} of {device.links} up"


def _ecc_errors(device: SeenGpu) -> str:
    """Return the memory errors since the driver was loaded; empty where ECC reports none of its counters."""
    counts = {kind: count for kind, count in device.ecc_errors.items() if count}
    return ", ".join(f"{count:.0f} {kind}" for kind, count in counts.items()) or ("0" if device.ecc_errors else "")


def _jobs(device: SeenGpu) -> str:
    if len(device.jobs) != 1:
        return f"{len(device.jobs)} jobs" if device.jobs else "none"
    (job,) = device.jobs
    return f"{cut(name_of(job))} <small>{escape(job.get('user', ''))}</small>"


def name_of(job: Mapping[str, str]) -> str:
    """Return the name of a job for people: its pod, else its number."""
    pod = job.get("pod", "")
    return f"{job.get('namespace', '')}/{pod}" if pod else job.get("job_id", "")


_FABRIC_HEADS = ("Port", "State", "Rate", "Sent, rolling peak", "Symbol errors", "Went down", "Link", "Adapter")
_PEAK_NOTE = (
    "<p><small>Rolling peak: the highest rate from one sample to the next within <code>sampling.window</code>, by "
    "default the last minute.</small></p>\n"
)
_PORT_NUMERIC = frozenset(_FABRIC_HEADS[2:6])
_SENT = "coldplate_infiniband_port_data_transmitted_peak_bytes_per_second"
_SYMBOLS = "coldplate_infiniband_symbol_error_total"
_DOWNS = "coldplate_infiniband_link_down_events_total"
_INFO = "coldplate_infiniband_info"
_JOB_INFO = "coldplate_job_info"
_START = "coldplate_job_start_timestamp_seconds"
_ENERGY = "coldplate_job_energy_joules_total"
METRICS = (ECC_ERRORS, _SENT, _SYMBOLS, _DOWNS, _INFO, _JOB_INFO, _START, _ENERGY)


def fabric_section(node: SeenNode, ports: Sequence[PortFacts], conditions: DeviceConditions) -> str:
    """Return the table; empty on a node without ports."""
    if not ports:
        return ""
    counts = {name: node.by_entity(name) for name in (_SENT, _SYMBOLS, _DOWNS)}
    infos = {reading.entity: reading.labels for reading in node.all(_INFO)}
    tones = {port: port_tone(port, conditions) for port in ports}
    rows = (
        _port_row(port, tones[port], counts, infos.get(port.port, {}))
        for port in sorted(ports, key=lambda port: _place(port, tones[port]))
    )
    return (
        table_head("InfiniBand", _FABRIC_HEADS, "cards ports", _PORT_NUMERIC) + "".join(rows) + TABLE_END + _PEAK_NOTE
    )


def port_tone(state: PortFacts, conditions: DeviceConditions) -> Tone:
    """Return the tone of the worst condition; without any, good only if it is up and the rules were evaluated."""
    is_known = state.word != "silent" and conditions.is_judged
    quiet = Tone.GOOD if state.is_up else Tone.CALM
    if not is_known:
        quiet = Tone.UNKNOWN
    return min(map(tone_of, conditions.conditions_of(state.port)), default=quiet)


def _place(state: PortFacts, tone: Tone) -> tuple[object, ...]:
    port = state.port
    return min(tone, Tone.CALM), len(port.device), port.device, port.port


def _port_row(
    state: PortFacts, tone: Tone, counts: Mapping[str, Mapping[Entity, float]], info: Mapping[str, str]
) -> str:
    port = state.port
    sent, symbols, downs = (values.get(port) for values in counts.values())
    rate = ABSENT if state.rate is None else f"{state.rate * 8e-9:.0f} Gb/s"
    adapter = " ".join(filter(None, (info.get("hca_type", ""), info.get("link_layer", ""))))
    cells = (
        cell("Port", f"<b>{escape(port.device)}/{escape(port.port)}</b>", "first"),
        cell("State", badge(tone, state.word)),
        cell("Rate", rate, "n"),
        cell("Sent, rolling peak", _traffic(sent), "n"),
        cell("Symbol errors", ABSENT if symbols is None else f"{symbols:.0f}", "n"),
        cell("Went down", ABSENT if downs is None else _times(downs), "n"),
        cell("Link", state.link or ABSENT),
        cell("Adapter", cut(adapter)),
    )
    return row(tone, "".join(cells))


def _times(count: float) -> str:
    return "once" if count == 1 else f"{count:.0f} times"


def _traffic(rate: float | None) -> str:
    """Return a rate in bytes per second as bits."""
    return ABSENT if rate is None else f"{rate * 8e-9:.1f} Gb/s"


MAX_ROWS = 100
_JOB_HEADS = ("Job", "Name", "User", "Account, partition", "GPUs", "Running for", "Energy so far")
_Key = tuple[str, str]


class JobFacts(Struct):
    """A scheduler's facts of a job; `start` in seconds since the epoch, `energy` in joules, None where unknown."""

    labels: Mapping[str, str] = field(default_factory=dict)
    start: float | None = None
    energy: float | None = None


def job_facts(node: SeenNode) -> dict[_Key, JobFacts]:
    """Return what schedulers report of each job."""
    facts: defaultdict[_Key, JobFacts] = defaultdict(JobFacts)
    for reading in node.all(_JOB_INFO):
        facts[job_key(reading.labels)].labels = reading.labels
    for reading in node.all(_START):
        facts[job_key(reading.labels)].start = reading.value
    for reading in node.all(_ENERGY):
        facts[job_key(reading.labels)].energy = reading.value
    return facts


def held(devices: Sequence[SeenGpu]) -> dict[_Key, list[SeenGpu]]:
    """Return the GPUs that each job holds, wholly or in part."""
    jobs: dict[_Key, list[SeenGpu]] = {}
    for device in devices:
        for key in {job_key(job) for job in device.jobs}:
            jobs.setdefault(key, []).append(device)
    return jobs


def jobs_section(node: SeenNode, devices: Sequence[SeenGpu], now: float | None) -> str:
    """Return the table; empty if no job holds a GPU."""
    jobs = held(devices)
    if not jobs:
        return ""
    facts = job_facts(node)
    rows = [_job_row(facts.get(key, JobFacts()), jobs[key], key, now) for key in sorted(jobs)[:MAX_ROWS]]
    more = f"<p>and {len(jobs) - MAX_ROWS} more.</p>\n" if len(jobs) > MAX_ROWS else ""
    return table_head("Jobs", _JOB_HEADS, "cards jobs") + "".join(rows) + TABLE_END + more


def _job_row(job: JobFacts, devices: Sequence[SeenGpu], key: _Key, now: float | None) -> str:
    facts = job.labels or next(labels for labels in devices[0].jobs if job_key(labels) == key)
    place = ", ".join(filter(None, (facts.get("account", ""), facts.get("partition", ""))))
    indexes = [int(d.gpu.index) for d in devices if d.gpu.index.isascii() and d.gpu.index.isdigit()]
    cells = (
        cell("Job", f"<b>{cut(name_of(facts))}</b> <small>{cut(facts.get('scheduler', ''))}</small>", "first"),
        cell("Name", cut(facts.get("name", ""))),
        cell("User", cut(facts.get("user", ""))),
        cell("Account, partition", cut(place)),
        cell("GPUs", short_numbers(indexes) or str(len(devices))),
        cell("Running for", ABSENT if job.start is None or now is None else age(now - job.start)),
        cell("Energy so far", ABSENT if job.energy is None else f"{job.energy / 3.6e6:.2f} kWh"),
    )
    return row(Tone.CALM, "".join(cells))


def job_key(labels: Mapping[str, str]) -> _Key:
    return labels.get("scheduler", ""), labels.get("job_id", "")
