"""The end of docs/metrics.md: the names of each exporter that are served, with coldplate's beside them."""

from __future__ import annotations

from collections.abc import Iterator

from agent.model import Kind
from exporters.compatibility import PROFILES
from exporters.compatibility.foreign_names import ForeignName, ForeignProfile, our_words

_INTRODUCTION = """\

# Names of other exporters

With `metrics.compatibility`, coldplate serves them beside its own ([how](install.md#moving-from-another-exporter)).
In OpenMetrics a counter's name ends in `_total`, so counters of other exporters that are named otherwise are of the
type `unknown` there; in the text format they are counters. `promtool check metrics` complains about these names, as it
does on those exporters' own pages. Rates are over the last 10 seconds.
"""

_PROSE = {
    "dcgm": """\
The default counters of dcgm-exporter 4.8 and the fields that sites often add are served at once. Labels are `gpu`,
`UUID`, `pci_bus_id`, `device`, `modelName`, `Hostname` and `hostname` (`metrics.hostname_label`),
`DCGM_FI_DRIVER_VERSION`, those of `metrics.dcgm_labels`, and for memory and activity of MIG instances `GPU_I_PROFILE`
and `GPU_I_ID`. `container`, `namespace` and `pod`, or `hpc_job`, come from the agent's own job attribution
([jobs.md](jobs.md)); while several jobs share a GPU it has none of them, and `coldplate_gpu_shared_job_info` lists
all. `honor_labels: true` keeps Prometheus from renaming them to `exported_pod` and its like. Rates are over the last
10 seconds, and absent until a counter was read twice. On a GPU in MIG mode the other series are the GPU's, not repeated
for each instance; the activity of an instance is the mean of the slow lane's period.

Differences that remain: `DCGM_FI_DEV_XID_ERRORS` has no labels `err_code` and `err_msg`, and is 0 until the first
XID; the window of `DCGM_EXP_XID_ERRORS_COUNT` is five minutes (`window_size_in_ms`), and begins with the agent; labels
that would be empty are left out, which is the same to Prometheus.

When dcgm-exporter is off, `nvidia-dcgm` can be stopped as well, if nothing else needs it.
""",
    "node_infiniband": """\
node_exporter remains the exporter of the host. Only its InfiniBand collector has a counterpart, with the same
suffixes: start it with `--no-collector.infiniband` before this profile is served, or every sum is doubled. Beside it,
coldplate reads ports that node_exporter gives up on: one unreadable file costs node_exporter all of its InfiniBand
metrics. `node_infiniband_lifespan_seconds` is 0.01 here where node_exporter divides whole numbers and shows 0.
""",
    "nvitop": """\
Everything is a gauge, as there. What is about a process has no counterpart: processes come and go, and their series
with them; `coldplate top` shows them, and `coldplate_gpu_job_info` lists the jobs that hold GPUs. The series cover
physical disks and network interfaces and file systems on local disks only.
""",
    "nvidia_smi": """\
Names as of August 2026, of both of its backends. The UUID is written in lower case and without `GPU-`, as there.
Fields that only describe the board, or that the agent does not read, are missing; of the info series, labels that the
agent does not know.
""",
    "opentelemetry": """\
No exporter, but the names that a collector gives to metrics of the conventions for hardware (in development, as of
November 2026) when it writes them for Prometheus: for a site that collects hosts of other makes by the same names.
`hw_id` is the GPU's UUID, and for the node's power its name. `hw_gpu_task` is `general`, `encoder` or `decoder`,
`hw_sensor_location` `core` or `memory`. Status and utilization limits of the conventions are not served.
""",
}


def render() -> str:
    return "\n".join([_INTRODUCTION, *(part for profile in PROFILES.values() for part in _section(profile))])


def _section(profile: ForeignProfile) -> Iterator[str]:
    yield f"## From {profile.title}: `{profile.word}`\n"
    yield _PROSE[profile.word]
    yield "| Name | Type | On coldplate | Remark |\n|---|---|---|---|"
    yield "\n".join(_line(each) for each in _once(profile)) + "\n"
    if profile.not_served:
        yield "Not served:\n\n| Name | Why | Instead |\n|---|---|---|"
        lines = (f"| `{each.name}` | {_cell(each.why)} | {_code(each.instead)} |" for each in profile.not_served)
        yield "\n".join(lines) + "\n"


def _once(profile: ForeignProfile) -> Iterator[ForeignName]:
    """Each name once: those of MIG instances are the GPU's."""
    seen: set[str] = set()
    for each in profile.names:
        if each.name not in seen:
            seen.add(each.name)
            yield each


def _line(name: ForeignName) -> str:
    kind = "counter" if name.kind is Kind.COUNTER else "gauge"
    return f"| `{name.name}` | {kind} | {_code(our_words(name))} | {_cell(name.note)} |"


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
