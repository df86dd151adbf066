"""docs/migrating.md: how to move from each of the exporters whose names are served, with their names beside ours."""

from __future__ import annotations

from collections.abc import Iterator

from agent.model import Kind
from exporters.compatibility import PROFILES
from exporters.compatibility.foreign_names import ForeignName, ForeignProfile, our_words

_INTRODUCTION = """\
# Moving from another exporter

<!-- Generated from exporters/compatibility by `make generate`. Do not edit. -->

coldplate can serve the names, labels, units and types of other exporters beside its own, so that dashboards and rules
work unchanged while a site moves:

```yaml
metrics:
  compatibility: [dcgm]      # any of dcgm, node_infiniband, nvitop, nvidia_smi; none by default
  hostname_label: both       # dcgm: Hostname, hostname (since dcgm-exporter of May 2026), or both
```

A reload puts it in force. The neighbours' series come from the same samples as ours, whatever `metrics.profile` and
its like select, and only on the page of metrics: rules on the node, recordings and `/api/v1/snapshot` have our names
alone.

The way is the same from each of them:

1. **See what would be missing.** `coldplate compat-check` reads dashboards (as exported by Grafana) and rule files,
   and tells of each query whether it finds data, under which profile, and what to query instead: `coldplate
   compat-check dashboards/*.json rules/*.yml`. It asks no server. Queries that rules on the node could not have either
   (MetricsQL, functions that are experimental in Prometheus) and library panels that the file only names are listed as
   unread. The exit status is 0 if all find data, 1 if some do not or are unread, and 2 if a file cannot be read;
   `--json` is for programs.
2. **Run both, scraped by different jobs.** The same name from two jobs is two series: a `sum` over both is twice what
   it was. So serve a profile only where nothing else serves the names, or select a job in the queries until then.
3. **Scrape coldplate under the old job's name** (`job_name`, or `relabel_configs` that set `job` and `instance`), and
   switch the old exporter off on these nodes at the same time. Queries that select by job or instance then find both,
   before and after.
4. **Move the queries to our names**, with the tables below, when there is time for it, and **switch the profile
   off**: take its word out of `metrics.compatibility` and reload. Counters of ours never go back when a driver is
   reloaded, clocks are in hertz and sizes in bytes, and what is absent is told with its reason.

What it costs on a node of 8 GPUs and 8 ports, measured with values that all change between two scrapes:

| profile | series | processor time of a scrape |
|---|---|---|
| none | 1,400 | 0.4 ms |
| `dcgm` | 400 more | 0.4 ms more |
| `node_infiniband` | 450 more | 0.1 ms more |
| `nvitop` | 170 more | 0.2 ms more |
| `nvidia_smi` | 630 more | 0.4 ms more |

Those that show rates (all but `node_infiniband`) also take 0.03 ms of each second, and nothing while they are off.

What a device does not offer is absent under every name: never 0 and never a placeholder such as 9223372036854775794.
In OpenMetrics a counter's name ends in `_total`, so counters of neighbours that are named otherwise are of the type
`unknown` there; in the text format they are counters. `promtool check metrics` finds fault with the neighbours'
names, as it does on their own pages.
"""

_PROSE = {
    "dcgm": """\
The default counters of dcgm-exporter 4.8 and the fields that sites often add are served at once. Labels are `gpu`,
`UUID`, `pci_bus_id`, `device`, `modelName`, `Hostname` and `hostname` (`metrics.hostname_label`),
`DCGM_FI_DRIVER_VERSION`, and `GPU_I_PROFILE` and `GPU_I_ID` for the memory of MIG instances. `container`, `namespace`
and `pod`, or `hpc_job`, come from the agent's own job attribution ([jobs.md](jobs.md)); while several jobs share a
GPU it has none of them, and `coldplate_gpu_shared_job_info` tells of all. `honor_labels: true` keeps Prometheus from
renaming them to `exported_pod` and its like. Rates are over the last 10 seconds, and absent until a counter was read
twice. On a GPU in MIG mode the other series are the GPU's, not repeated for each instance.

Differences that remain: `DCGM_FI_DEV_XID_ERRORS` has no labels `err_code` and `err_msg`, and is 0 until the first
XID; labels that would be empty are left out, which is the same to Prometheus.

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
with them; `coldplate top` shows them, and `coldplate_gpu_job_info` tells of the jobs that hold GPUs. Only physical
disks and network interfaces, and file systems on local disks, are told of.
""",
    "nvidia_smi": """\
Names as of August 2026, of both of its backends. The UUID is written in lower case and without `GPU-`, as there.
Fields that only describe the board, or that the agent does not read, are missing; of the info series, labels that the
agent does not know.
""",
}


def render() -> str:
    """Return the document."""
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
