"""Draw the table of GPUs with as many columns as the width holds, the most useful first, and the processes of one."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.text import Text

from agent.commands.top.screen import text_layout
from agent.commands.top.screen.key_input import GpuKey, OneJob, Sort, UiState
from agent.commands.top.screen.node_samples import NVLINK, PCIE
from agent.commands.top.screen.node_view import GpuView, NodeView
from agent.commands.top.screen.text_layout import ABSENT, BAR, CHOSEN, DIM, HEAD, SPARK, STYLES, Part, TextLayout, panel
from agent.health.device_facts import INTENDED, throttle_word
from exporters.landing_parts import name_of
from exporters.markup import Tone

MOST_PROCESSES = 8
"""Lines for processes: a job has one on each GPU, and rarely more than a few."""


def process_lines(node: NodeView, gpu: GpuView, layout: TextLayout) -> list[Text]:
    """Return the list, those with the most memory first, or one line that says why there is no list."""
    if node.processes is None:
        return [layout.line(("processes: shown by coldplate top --no-attach on the node itself", DIM))]
    listed = node.processes.get(gpu.row.gpu)
    if listed is None:
        return [layout.line(("processes: the driver does not list them", DIM))]
    if not listed:
        return [layout.line(("processes: none", DIM))]
    rows = [("PID", "USER", "MEMORY", "COMMAND")]
    rows += [
        (str(process.pid), process.user or ABSENT, _mebibytes(process.memory), process.command or ABSENT)
        for process in listed
    ]
    lines = [
        layout.line(f"  {pid:>8}  ", layout.pad(user, 16), f" {memory:>10}  {command}")
        for pid, user, memory, command in rows
    ]
    return panel("PROCESSES", lines, MOST_PROCESSES + 3, layout)  # with its title, the names and what is left out


def _mebibytes(memory: int | None) -> str:
    return text_layout.plain(memory, 1 / 2**20, unit=" MiB")


GIB = 2.0**-30

Row = GpuView | NodeView
"""A GPU, or a node of which nothing is known."""


ShowsGpu = Callable[[GpuView, TextLayout, int], Part]
"""Shows a value of a GPU in a number of cells."""


class GpuColumn(Struct, frozen=True):
    """One column. Those with the lowest `rank` are kept when room is short; `grows` takes what is left."""

    head: str
    width: int
    rank: int
    show: ShowsGpu
    right: bool = True
    most: int = 0
    """Cells that it may take at most, if there is room and its content needs them; 0 for its width alone."""
    is_chart: bool = False
    """Whether it can use any number of cells, once all others have what they need."""


def _state(gpu: GpuView, _layout: TextLayout, _width: int) -> Part:
    """Return what it does, or why it is not read, in the colour of the worst condition that names it."""
    return gpu.row.shown_word or ABSENT, STYLES[gpu.tone]


def _value(show: Callable[[GpuView], str]) -> ShowsGpu:
    return lambda gpu, _layout, _width: (show(gpu), "")


def _bar(gpu: GpuView, layout: TextLayout, width: int) -> Part:
    return layout.glyphs.bar(gpu.row.busy, width), BAR


def _busy_line(gpu: GpuView, layout: TextLayout, width: int) -> Part:
    return layout.glyphs.sparkline(gpu.busy_history, 1.0, width), SPARK


def _power_line(gpu: GpuView, layout: TextLayout, width: int) -> Part:
    return layout.glyphs.sparkline(gpu.power_history, gpu.value("power_limit_watts") or 0.0, width), SPARK


def _power(gpu: GpuView, _layout: TextLayout, width: int) -> Part:
    """Return the power of its limit, or without the limit where both do not fit: 1153/120… would be another limit."""
    power = gpu.value("power_watts")
    text = text_layout.value_of_limit(power, gpu.value("power_limit_watts"), unit="W")
    fits = len(text) <= width
    return text if fits else text_layout.plain(power, unit="W"), ""


def _memory(gpu: GpuView) -> str:
    return text_layout.value_of_limit(gpu.value("memory_used_bytes"), gpu.value("memory_total_bytes"), GIB, "G")


def _heat(name: str) -> ShowsGpu:
    return lambda gpu, layout, _: (text_layout.plain(gpu.value(name), unit=layout.glyphs.degree), "")


def _share(name: str) -> ShowsGpu:
    return _value(lambda gpu: text_layout.percent(gpu.value(name)))


def throttle_part(gpu: GpuView) -> Part:
    """Return what reduces its clocks: what is intended, such as the power cap of a busy GPU, last, and dimmed alone."""
    if not gpu.row.up or not gpu.row.has_throttle_readings:
        return ABSENT, ""
    if not gpu.row.throttles:
        return "nothing", ""
    reasons = sorted(gpu.row.throttles, key=lambda reason: (reason in INTENDED, reason))
    return ", ".join(map(throttle_word, reasons)), DIM if reasons[0] in INTENDED else ""


def _links(gpu: GpuView) -> str:
    return f"{gpu.row.links_up}/{gpu.row.links}" if gpu.row.links else ABSENT


def _ecc_errors(gpu: GpuView) -> str:
    """Return the memory errors since the driver was loaded, of all types."""
    counts = gpu.row.ecc_errors
    return f"{sum(counts.values()):.0f}" if counts else ABSENT


def _job(gpu: GpuView) -> str:
    if len(gpu.row.jobs) > 1:
        return f"{len(gpu.row.jobs)} jobs"
    return name_of(gpu.job or {}) or ABSENT


def _of_job(fact: str, style: str = "") -> ShowsGpu:
    return lambda gpu, _layout, _width: ((gpu.job or {}).get(fact) or ABSENT, style)


def _reasons(gpu: GpuView, _layout: TextLayout, _width: int) -> Part:
    return gpu.reasons, STYLES[min(gpu.tone, Tone.CALM)]


COLUMNS = (
    GpuColumn("", 1, 0, lambda gpu, layout, _: (layout.glyphs.marks[gpu.tone], STYLES[gpu.tone])),
    GpuColumn("GPU", 3, 0, _value(lambda gpu: gpu.index)),
    GpuColumn("STATE", 9, 1, _state, False),
    GpuColumn("BUSY", 4, 2, _value(lambda gpu: text_layout.percent(gpu.row.busy))),
    GpuColumn("", 8, 7, _bar, False),
    GpuColumn("BUSY LATELY", 12, 10, _busy_line, most=40, is_chart=True),
    GpuColumn("SM", 4, 16, _share("sm_active_ratio")),
    GpuColumn("TENS", 4, 17, _share("tensor_active_ratio")),
    GpuColumn("DRAM", 4, 18, _share("dram_active_ratio")),
    GpuColumn("MEMORY", 8, 5, _value(_memory)),
    GpuColumn("POWER", 9, 3, _power, most=10),
    GpuColumn("POWER LATELY", 12, 15, _power_line, most=40, is_chart=True),
    GpuColumn("TEMP", 4, 4, _heat("temperature_celsius")),
    GpuColumn("HBM", 4, 12, _heat("memory_temperature_celsius")),
    GpuColumn("MHZ", 4, 8, _value(lambda gpu: text_layout.plain(gpu.value("clock_hertz"), 1e-6))),
    GpuColumn("THROTTLE", 11, 9, lambda gpu, _layout, _width: throttle_part(gpu), False),
    GpuColumn("NVLINK", 8, 11, _value(lambda gpu: text_layout.rate(gpu.rate(*NVLINK)))),
    GpuColumn("LINKS", 5, 19, _value(_links)),
    GpuColumn("ECC", 5, 14, _value(_ecc_errors)),
    GpuColumn("PCIE", 8, 13, _value(lambda gpu: text_layout.rate(gpu.rate(*PCIE)))),
    GpuColumn("JOB", 6, 6, _value(_job), False, most=24),
    GpuColumn("USER", 6, 9, _of_job("user"), False, most=12),
    GpuColumn("NAME", 10, 20, _of_job("name", DIM), False, most=20),
    GpuColumn("WHY", 24, 14, _reasons, False, most=200),
)
MOST_NODE = 20
_STEP = 8
"""Widths that follow the content change in steps of this many cells, or each sample would move all columns."""


def columns_for(rows: Sequence[Row], layout: TextLayout, node_width: int) -> list[GpuColumn]:
    """Return the columns that the width holds, in their order; the rest goes to those whose content needs it."""
    columns = list(COLUMNS)
    if node_width:
        columns.insert(1, GpuColumn("NODE", node_width, 0, _value(lambda gpu: gpu.node), False))
    room = layout.width + 1
    kept: set[int] = set()
    for place in sorted(range(len(columns)), key=lambda place: columns[place].rank):
        if columns[place].width + 1 > room:
            break
        kept.add(place)
        room -= columns[place].width + 1
    chosen = [columns[place] for place in sorted(kept)]
    for place, column in sorted(enumerate(chosen), key=lambda pair: (pair[1].is_chart, pair[1].rank)):
        more = min(max(_useful_width(column, rows, layout) - column.width, 0), room)
        chosen[place] = replace(column, width=column.width + more)
        room -= more
    return chosen


def _useful_width(column: GpuColumn, rows: Sequence[Row], layout: TextLayout) -> int:
    """Return cells that a column has a use for."""
    if not column.most or column.is_chart:
        return column.most
    gpus = [row for row in rows if isinstance(row, GpuView)]
    longest = max((cell_len(layout.glyphs.text(column.show(gpu, layout, column.most)[0])) for gpu in gpus), default=0)
    return min(-(-longest // _STEP) * _STEP, column.most)


def node_width(nodes: Sequence[NodeView], layout: TextLayout) -> int:
    """Return cells for the names of nodes, 0 where there is one node only."""
    if len(nodes) < 2:
        return 0
    return min(max(cell_len(layout.glyphs.text(node.name)) for node in nodes), MOST_NODE, max(layout.width // 4, 5))


def heading(columns: Sequence[GpuColumn], layout: TextLayout, sort: Sort) -> Text:
    """Return the line above the rows; the column that they are sorted by is underlined."""
    parts: list[Part] = []
    for column in columns:
        style = f"{HEAD} underline" if column.head.lower() == _HEADS.get(sort, "") else HEAD
        parts += [(layout.pad(column.head, column.width, column.right), style), (" ", "")]
    return layout.line(*parts[:-1])


_HEADS = {**{sort: sort.value for sort in Sort}, Sort.TROUBLE: "state", Sort.INDEX: "gpu"}


def row_line(row: Row, columns: Sequence[GpuColumn], layout: TextLayout, chosen: bool) -> Text:
    """Return one row; the selected one in reverse."""
    if isinstance(row, NodeView):
        line = layout.line((f"{layout.glyphs.marks[Tone.BAD]} {row.name}  {row.problem}", STYLES[Tone.BAD]))
    else:
        parts: list[Part] = []
        for column in columns:
            text, style = column.show(row, layout, column.width)
            parts += [(layout.pad(text, column.width, column.right), style), (" ", "")]
        line = layout.line(*parts[:-1])
    if chosen:
        line.pad_right(max(layout.width - line.cell_len, 0))
        line.stylize(CHOSEN)
    return line


def key_of(row: Row) -> GpuKey:
    return (row.name, "") if isinstance(row, NodeView) else row.key


def job_of(row: Row) -> OneJob | None:
    if isinstance(row, NodeView) or row.job is None:
        return None
    return OneJob(row.job.get("scheduler", ""), row.job.get("job_id", ""))


def rows_of(nodes: Sequence[NodeView], state: UiState) -> list[Row]:
    """Return the rows that are asked for, in the order asked for. A node that does not answer is a row, too."""
    rows: list[Row] = []
    job = state.zoom if isinstance(state.zoom, OneJob) else None
    for node in nodes:
        if node.problem and job is None and matches(node, state.filter):
            rows.append(node)
        rows += [gpu for gpu in node.gpus if matches(gpu, state.filter) and job in (None, job_of(gpu))]
    return sorted(rows, key=_ORDERS[state.sort], reverse=state.reverse)


def matches(row: Row, words: str) -> bool:
    """Return whether every word of the filter stands in what the row shows: node, GPU, state, model, job, owner."""
    if isinstance(row, NodeView):
        text = f"{row.name} {row.problem}"
    else:
        jobs = [" ".join((name_of(job), job.get("user", ""), job.get("name", ""))) for job in row.row.jobs]
        text = " ".join(
            (row.node, f"gpu{row.index}", row.row.shown_word, row.row.gpu.uuid, *row.row.facts.values(), *jobs)
        )
    return all(word in text.casefold() for word in words.casefold().split())


def _place(row: Row) -> tuple[object, ...]:
    return (row.name, 0, "") if isinstance(row, NodeView) else (row.node, len(row.index), row.index)


def _most_first(name: str) -> Callable[[Row], tuple[object, ...]]:
    """Sort by a value, the highest first; rows without it last."""

    def order(row: Row) -> tuple[object, ...]:
        value = None if isinstance(row, NodeView) else row.value(name)
        return (value is None, -(value or 0.0), *_place(row))

    return order


def _by_trouble(row: Row) -> tuple[object, ...]:
    tone = Tone.BAD if isinstance(row, NodeView) else min(row.tone, Tone.CALM)
    waits = not isinstance(row, NodeView) and row.word == "waiting"
    return (tone, waits, *_place(row))  # a GPU that others wait for stands above those that wait


def _by_job(row: Row) -> tuple[object, ...]:
    job = job_of(row)
    return (job is None, "" if job is None else job.job, *_place(row))


_ORDERS: Mapping[Sort, Callable[[Row], tuple[object, ...]]] = {
    Sort.TROUBLE: _by_trouble,
    Sort.INDEX: _place,
    Sort.BUSY: _most_first("utilization_ratio"),
    Sort.MEMORY: _most_first("memory_used_bytes"),
    Sort.POWER: _most_first("power_watts"),
    Sort.TEMPERATURE: _most_first("temperature_celsius"),
    Sort.JOB: _by_job,
}
