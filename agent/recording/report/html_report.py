"""Write the report as one page of HTML without script, other files or network; light or dark as the reader's system."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from agent.lib.wording import one_line
from agent.model import Severity
from agent.recording.report import report_card as card
from agent.recording.report import report_series as chosen
from agent.recording.report import report_tables as tables
from agent.recording.report.observation import AlertOfRun, Judgement, Observation, PendingAlert, coverage_texts
from agent.recording.report.report_wording import span_text
from agent.recording.report.run_facts import RecordedRun
from agent.recording.report.series_statistics import Envelope
from agent.recording.report.svg_plots import PlotCurve, plot

MOST_LINES = 16
"""Lines in a plot; GPUs beyond are in its band."""
MOST_ALERTS = 500
_COLOURS = 8
_SINGLED_OUT = 3
"""GPUs that alerts above `info` are about: if there are no more, only they are in colour."""


class _Panel(NamedTuple):
    """A plot: its title, the series that are added up, and the unit."""

    title: str
    names: Sequence[str]
    unit: str


_PANELS = (
    _Panel("GPU utilization", (chosen.UTILIZATION,), "%"),
    _Panel("Power, W", (chosen.POWER,), "W"),
    _Panel("SM activity", (chosen.SM,), "%"),
    _Panel("Tensor activity", (chosen.TENSOR,), "%"),
    _Panel("DRAM activity", (chosen.DRAM,), "%"),
    _Panel("Memory in use, GiB", (chosen.MEMORY,), "GiB"),
    _Panel("SM clock, MHz", (chosen.CLOCK,), "MHz"),
    _Panel("Temperature, °C", (chosen.TEMPERATURE,), "°C"),
    _Panel("NVLink, sent and received, GB/s", chosen.NVLINK, "GB/s"),
    _Panel("PCIe, sent and received, GB/s", chosen.PCIE, "GB/s"),
)
_PORTS = _Panel("InfiniBand, sent and received, GB/s", chosen.PORTS, "GB/s")


def html_report(run: RecordedRun, judgement: Judgement, recorded: Sequence[Observation]) -> str:
    """Return the page. Whatever a recording calls things is escaped.

    `recorded` are alerts that the node's own agent had, and that the judgement lacks.
    """
    names = [one_line(file.rpartition("/")[2], 100) for file in run.files[:4]]
    title = f"Report on {', '.join(names)}{' and others' if len(run.files) > len(names) else ''}"
    named = len(run.nodes) > 1
    body = [
        *_head(run, title),
        *_judgement(judgement, run.problems, named),
        *_plots(run, judgement.observations),
        *_tables(run),
        *_recorded(recorded, named),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n" + "\n".join(body) + "\n"
        "</main></body></html>\n"
    )


def _head(run: RecordedRun, title: str) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    for line in card.run_lines(run):
        yield f"<p>{escape(line)}</p>"
    for problem in run.problems:
        yield f'<p class="fault"><b>{card.PROBLEM}</b> {escape(one_line(problem, 1000))}</p>'


def _judgement(judgement: Judgement, problems: Sequence[str], named: bool) -> Iterator[str]:
    yield '<h2>What the rules say</h2><ul class="alerts">'
    for observation in judgement.observations[:MOST_ALERTS]:
        yield _item(
            observation, named, one_line(observation.annotations.get("description", ""), card.MAX_DESCRIPTION_LENGTH)
        )
    yield f"</ul>{_left_out(judgement.observations)}"
    if judgement.pending:
        yield '<ul class="alerts">'
        yield from (_pending_item(alert, named) for alert in judgement.pending[:MOST_ALERTS])
        yield f"</ul>{_left_out(judgement.pending)}"
    yield from (f'<p class="soft">{escape(text)}</p>' for text in coverage_texts(judgement, problems))


def _item(observation: Observation, named: bool, description: str = "") -> str:
    severity = observation.severity.value
    details = escape(card.observation_text(observation, named)) + (f"<br>{escape(description)}" if description else "")
    title = f"<b>{severity.capitalize()}.</b> {escape(observation.summary)}"
    return f'<li class="{severity}">{title}<br><small>{details}</small></li>'


def _pending_item(alert: PendingAlert, named: bool) -> str:
    """Return the item of an alert; its summary says what had not yet come true."""
    summary = f"<br><small>would fire as: {escape(alert.summary)}</small>" if alert.annotations.get("summary") else ""
    return f'<li class="pending"><b>Pending.</b> {escape(card.pending_text(alert, named))}{summary}</li>'


def _left_out(observations: Sequence[AlertOfRun]) -> str:
    more = len(observations) - MOST_ALERTS
    return f"<p>And {more} more: --json has all.</p>" if len(observations) > MOST_ALERTS else ""


def _recorded(recorded: Sequence[Observation], named: bool) -> Iterator[str]:
    if recorded:
        yield f'<h2>{card.RECORDED}</h2><ul class="alerts">'
        yield from (_item(observation, named) for observation in recorded[:MOST_ALERTS])
        yield f"</ul>{_left_out(recorded)}"


def _plots(run: RecordedRun, alerts: Sequence[Observation]) -> Iterator[str]:
    gpus = run.gpus()
    if not gpus and not run.ports():
        return
    marked = [alert for alert in alerts if alert.severity is not Severity.INFO]
    places = {(alert.node, alert.labels.get("gpu")) for alert in marked}
    meant = {gpu.title for gpu in gpus if (gpu.node.name, gpu.gpu.index) in places}
    first = [gpu for gpu in gpus if gpu.title in meant] + [gpu for gpu in gpus if gpu.title not in meant]
    lines = first[:MOST_LINES]
    styles = _styles([gpu.title for gpu in lines], meant if len(meant) <= _SINGLED_OUT else set())
    spans = _spans(marked)
    yield "<h2>Over time</h2>"
    mean = f"the mean over {span_text(run.grid.width)}" if run.grid.width > run.interval else "a snapshot"
    yield (
        f'<p class="soft">UTC. Each point is {mean}; the grey band is from the lowest to the highest value of any GPU, '
        "so no peak is lost. Lines break where nothing was recorded. Red: an alert above info fired.</p>"
    )
    yield _key(styles, len(gpus) - len(lines))
    yield '<div class="plots">'
    for panel in _PANELS:
        by_title = {gpu.title: gpu.envelopes(panel.names) for gpu in gpus}
        yield from _plot(run, panel, by_title, styles, spans)
    ports = run.ports()
    named = len(run.nodes) > 1
    by_title = {
        f"{facts.node.name if named else ''} {port.device}/{port.port}".strip(): facts.envelopes(_PORTS.names)
        for port, facts in ports
    }
    yield from _plot(run, _PORTS, by_title, _styles(list(by_title)[:MOST_LINES], set()), spans)
    yield "</div>"


def _spans(alerts: Sequence[Observation]) -> list[tuple[float, float, str]]:
    """Return the spans in which alerts fired, with their names, in the order of time."""
    spans: list[tuple[float, float, str]] = []
    for alert in sorted(alerts, key=lambda alert: alert.first):
        name = escape(one_line(alert.alert, 80))
        if spans and alert.first <= spans[-1][1]:
            first, last, names = spans[-1]
            spans[-1] = first, max(last, alert.last), names if name in names.split(", ") else f"{names}, {name}"
        else:
            spans.append((alert.first, alert.last, name))
    return spans


def _styles(titles: Sequence[str], meant: set[str]) -> dict[str, str]:
    """Return the class of each line: a colour, or a quiet one if others are meant."""
    if meant:
        order = iter(range(_COLOURS))
        return {title: f"l{next(order)}" if title in meant else "quiet" for title in titles}
    return {title: f"l{place % _COLOURS}" for place, title in enumerate(titles)}


def _plot(
    run: RecordedRun,
    panel: _Panel,
    by_title: dict[str, list[Envelope]],
    styles: dict[str, str],
    spans: Sequence[tuple[float, float, str]],
) -> Iterator[str]:
    curves = [
        PlotCurve(escape(one_line(title, 64)), envelopes, styles.get(title, ""))
        for title, envelopes in by_title.items()
        if envelopes
    ]
    if not curves:
        if by_title:
            yield f'<section><h3>{panel.title}</h3><p class="soft">n/a: not recorded</p></section>'
        return
    # What is meant is drawn last, above the others.
    drawn = sorted((curve for curve in curves if curve.style), key=lambda curve: curve.style != "quiet")
    picture = plot(run.grid, curves, drawn, unit=panel.unit, scale=tables.scale_of(panel.unit), spans=spans)
    yield f"<section><h3>{panel.title}</h3>{picture}</section>"


def _key(styles: dict[str, str], left_out: int) -> str:
    entries: list[tuple[str, str]] = [(f"GPU {title}", style) for title, style in styles.items() if style != "quiet"]
    if len(entries) < len(styles):
        entries.append(("other GPUs", "quiet"))
    sample = '<svg viewBox="0 0 26 8"><path class="line {}" d="M1 4H25"/></svg>'
    items = [f"<span>{sample.format(style)}{escape(one_line(title, 64))}</span>" for title, style in entries]
    if left_out > 0:
        items.append(f"<span>{left_out} GPUs more are in the band only</span>")
    return f'<div class="key">{"".join(items)}</div>'


def _tables(run: RecordedRun) -> Iterator[str]:
    for title, table in (
        ("GPUs", tables.activity_table(run)),
        ("What the GPUs did with their time", tables.state_table(run)),
        ("Energy, lost time and traffic", tables.loss_table(run)),
        ("Between nodes: InfiniBand, GB/s", tables.port_table(run)),
        ("Nodes", tables.node_table(run)),
    ):
        if table.rows:
            note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
            heads = [head.replace("\n", " ") for head in table.heads]
            yield f"<h2>{title}</h2>{_table(heads, table.rows)}{note}"
        if title == "GPUs":
            texts = (*card.imbalance_texts(run), *card.step_texts(run))
            yield from (f'<p class="soft">{escape(text)}</p>' for text in texts)


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


STYLE = """
:root{color-scheme:light dark;--ink:#16202a;--soft:#55626f;--line:#dce2e8;--paper:#fff;--wash:#f4f6f8;--bad:#b3261e;
--warn:#8a4b00;--c0:#0b5cad;--c1:#c2410c;--c2:#15803d;--c3:#7e22ce;--c4:#0e7490;--c5:#be185d;--c6:#a16207;--c7:#4b5563}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9aa8b5;--line:#2b3743;--paper:#12181e;--wash:#1a222b;
--bad:#ff8a7c;--warn:#f0b04a;--c0:#7bbcff;--c1:#fb923c;--c2:#4ade80;--c3:#c4a0ff;--c4:#5ed3e8;--c5:#f78fbf;
--c6:#e5c454;--c7:#a8b3bf}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:78rem;margin:0 auto;padding:1.25rem}
h1{font-size:1.4rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:1.75rem 0 .5rem}
h3{font-size:.9rem;margin:0 0 .2rem;font-weight:600}
p{margin:.15rem 0;overflow-wrap:anywhere}
small,.soft{color:var(--soft);font-size:.87em}
.alerts{list-style:none;padding:0;margin:0}
.alerts li{background:var(--wash);border:1px solid var(--line);border-left:.4rem solid var(--soft);border-radius:.3rem;
padding:.55rem .8rem;margin:.45rem 0;overflow-wrap:anywhere}
.alerts .critical{border-left-color:var(--bad)}
.alerts .warning{border-left-color:var(--warn)}
.critical b,.fault b{color:var(--bad)}
.warning b{color:var(--warn)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(30rem,100%),1fr));gap:.9rem}
.plots section{border:1px solid var(--line);border-radius:.4rem;padding:.6rem .7rem}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font:20px system-ui,sans-serif}
.grid{stroke:var(--line);fill:none}
.band{fill:var(--soft);fill-opacity:.16}
.line{fill:none;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}
.line:hover{stroke-width:4}
.mark{fill:var(--bad);fill-opacity:.1}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}
.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}.l6{stroke:var(--c6)}.l7{stroke:var(--c7)}
.quiet{stroke:var(--soft);stroke-opacity:.45;stroke-width:1.1}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.2rem 0 .7rem}
.key span{white-space:nowrap}
.key svg{display:inline-block;width:1.6rem;height:.7rem;margin-right:.35rem;vertical-align:baseline}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.25rem .5rem;white-space:nowrap}
th{color:var(--soft);font-weight:500;font-size:.82rem;vertical-align:bottom}
th:first-child,td:first-child{text-align:left}
tbody tr{border-top:1px solid var(--line)}
@media print{.plots section{break-inside:avoid}}
"""
