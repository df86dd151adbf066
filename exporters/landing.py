"""The page at `/`: what this node is, what it samples, and how old that is, for a person with a browser.

Self-contained: no script, no file from elsewhere, and a content security policy that says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.model import BackendReport, Gpu, GroupReport, Outcome, Snapshot
from exporters import landing_alerts
from exporters.markup import escape, table

STYLE = """
:root{color-scheme:light dark;--ink:#16202a;--soft:#5b6875;--line:#dce2e8;--paper:#fff;--wash:#f4f6f8;
--good:#1a7f4b;--bad:#c0392b;--link:#0b63b5}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#93a1af;--line:#2b3743;--paper:#12181e;--wash:#1a222b;
--good:#4cc38a;--bad:#ff7b6b;--link:#6cb4ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:2rem 1.25rem}
h1{font-size:1.6rem;margin:0}
h1 small{font-weight:400;font-size:.9rem;color:var(--soft);margin-left:.5rem}
h2{font-size:1rem;margin:2rem 0 .5rem}
a{color:var(--link)}
.banner{background:#b4530a;color:#fff;font-weight:600;padding:.75rem 1rem;border-radius:.4rem;margin:1rem 0}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:1.25rem 0}
dl div{background:var(--wash);border:1px solid var(--line);border-radius:.4rem;padding:.6rem .8rem}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.1rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .75rem .35rem 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:500;font-size:.8rem}
td.n,th.n{text-align:right}
td.since{white-space:nowrap}
td.where{color:var(--soft);font-size:.85rem;overflow-wrap:anywhere}
.good{color:var(--good)}
.bad{color:var(--bad);font-weight:600}
ul{padding-left:1.2rem}
"""

STYLE_HASH = "sha256-2ghqZ2sDSMDai+ip3mIj2a5X9H2TE/+WJDwBUdNA0Y4="
"""Of STYLE: the one style sheet that the policy lets a browser apply. A test proves that it is right."""

_POLICY = (
    f"default-src 'none'; style-src '{STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)

_GPU_COLUMNS = (
    # (metric, heading, factor to what people read, unit)
    ("coldplate_gpu_utilization_ratio", "Busy", 100.0, "%"),
    ("coldplate_gpu_power_watts", "Power", 1.0, "W"),
    ("coldplate_gpu_temperature_celsius", "Core", 1.0, "°C"),
    ("coldplate_gpu_memory_used_bytes", "Memory", 2.0**-30, "GiB"),
)
_UP = "coldplate_gpu_up"
_INFO = "coldplate_gpu_info"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the page shows; `age` in seconds, None before the first sample; `groups` None without a rules engine."""

    node: str
    version: str
    synthetic: str | None
    telemetry_path: str
    snapshot: Snapshot | None
    age: float | None
    readiness: tuple[bool, str]
    groups: tuple[GroupReport, ...] | None = None


def pieces(facts: Facts) -> Iterator[bytes]:
    """The HTML document, bit by bit."""
    node = escape(facts.node)
    yield _encode(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>coldplate on {node}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>coldplate <small>{escape(facts.version)} on {node}</small></h1>\n"
    )
    yield from map(_encode, _sections(facts))
    yield b"</main>\n</body>\n</html>\n"


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _sections(facts: Facts) -> Iterator[str]:
    if facts.synthetic is not None:
        yield (
            f'<p class="banner" role="alert">Synthetic devices, scenario {escape(facts.synthetic)}:'
            " nothing they show is real.</p>\n"
        )
    devices = _devices(facts.snapshot)
    yield ""
    alerts = None if facts.groups is None else (yield from landing_alerts.look_at(facts.groups))
    yield _summary(facts, devices, alerts)
    if alerts is not None:
        yield landing_alerts.section(alerts, None if facts.snapshot is None else facts.snapshot.at.wall)
    if devices:
        yield _gpu_table(devices)
    if facts.snapshot is not None:
        yield _backend_table(facts.snapshot.reports)
    yield _links(facts.telemetry_path)


def _summary(facts: Facts, devices: dict[Gpu, dict[str, str | float]], alerts: landing_alerts.Overview | None) -> str:
    ready, text = facts.readiness
    answering = sum(1 for values in devices.values() if values.get(_UP) == 1)
    tiles = [
        ("State", f'<span class="{"good" if ready else "bad"}">{escape("ready" if ready else text)}</span>'),
        ("GPUs", f"{answering} of {len(devices)} answer" if devices else "none"),
        ("Series", "none yet" if facts.snapshot is None else str(len(facts.snapshot.readings))),
        ("Sample age", "no sample yet" if facts.age is None else f"{facts.age:.1f} s"),
    ]
    if alerts is not None:
        tiles.append(("Alerts", landing_alerts.tile(alerts)))
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles) + "</dl>\n"


def _devices(snapshot: Snapshot | None) -> dict[Gpu, dict[str, str | float]]:
    """What the table shows of each GPU, by metric name; a metric that is absent stays absent."""
    wanted = {_UP, *(name for name, _, _, _ in _GPU_COLUMNS)}
    devices: dict[Gpu, dict[str, str | float]] = {}
    for series, value in snapshot.readings if snapshot is not None else ():
        if not isinstance(series.entity, Gpu):
            continue
        name = series.metric.name
        if name in wanted:
            devices.setdefault(series.entity, {})[name] = value
        elif name == _INFO:
            devices.setdefault(series.entity, {})[name] = dict(series.labels).get("model", "")
    return devices


def _gpu_table(devices: dict[Gpu, dict[str, str | float]]) -> str:
    heads = "".join(f'<th class="n">{heading}</th>' for _, heading, _, _ in _GPU_COLUMNS)
    rows = "".join(
        _gpu_row(gpu, values)
        for gpu, values in sorted(devices.items(), key=lambda item: (len(item[0].index), item[0].index, item[0].uuid))
    )
    return table("GPUs", f"<th>GPU</th><th>Model</th><th>Answers</th>{heads}", rows)


def _gpu_row(gpu: Gpu, values: dict[str, str | float]) -> str:
    model = escape(str(values.get(_INFO, "–")))
    cells = "".join(
        f'<td class="n">{_quantity(values.get(name), factor, unit)}</td>' for name, _, factor, unit in _GPU_COLUMNS
    )
    return f"<tr><td>{escape(gpu.index)}</td><td>{model}</td><td>{_up(values.get(_UP))}</td>{cells}</tr>\n"


def _up(value: str | float | None) -> str:
    if value is None:
        return "–"
    return '<span class="good">yes</span>' if value == 1 else '<span class="bad">no</span>'


def _quantity(value: str | float | None, factor: float, unit: str) -> str:
    if not isinstance(value, (int, float)):
        return "–"
    return f"{value * factor:.0f} {unit}"


def _backend_table(reports: tuple[BackendReport, ...]) -> str:
    rows = "".join(
        f"<tr><td>{escape(report.backend)}</td><td>{_outcome(report.outcome)}</td>"
        f'<td class="n">{report.duration * 1e3:.1f} ms</td><td class="n">{len(report.gaps)}</td>'
        f"<td>{escape(report.detail)}</td></tr>\n"
        for report in reports
    )
    heads = '<th>Backend</th><th>Outcome</th><th class="n">Last read</th><th class="n">Missing</th><th>Detail</th>'
    return table("Backends", heads, rows)


def _outcome(outcome: Outcome) -> str:
    tone = {Outcome.OK: "good", Outcome.ABSENT: "", Outcome.FAILED: "bad"}[outcome]
    return f'<span class="{tone}">{outcome.value}</span>'


def _links(telemetry_path: str) -> str:
    targets = (
        (telemetry_path, "the metrics, for Prometheus"),
        ("/-/healthy", "whether the process lives"),
        ("/-/ready", "whether the last sample is fresh"),
        ("/api/v1/snapshot", "the last sample as JSON, with the reason for each missing metric"),
        ("/api/v1/alerts", "the alerts that are pending or firing, in Prometheus's JSON"),
        ("/api/v1/rules", "the rules and how their last evaluation went, in Prometheus's JSON"),
    )
    items = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a> {what}</li>\n' for path, what in targets)
    return f"<h2>Pages</h2>\n<ul>\n{items}</ul>\n"
