"""What is drawn: the committed panes, any size of terminal, and what a terminal cannot show; and what keys and the
mouse do to it. In one file, since the scenes take most of the time.
"""

from __future__ import annotations

import html
import io
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from agent.commands.top.screen.frame import Painter, draw
from agent.commands.top.screen.key_input import KeyReader, OneGpu, OneJob, Press, Sort, UiState, press
from agent.commands.top.screen.node_samples import NodeSample
from agent.commands.top.screen.node_view import NodeView
from agent.commands.top.screen.panes import alert_lines, help_lines, node_line
from agent.commands.top.screen.text_layout import ASCII, UNICODE, Glyphs, TextLayout, glyphs_for
from agent.commands.top.screen.view_builder import ScreenData, ViewKeeper
from agent.model import Alert, Gpu, Instant, Node, Phase
from exporters.markup import Tone
from tests.exporters.conftest import reading
from tests.frames import snapshot_of
from tests.screen.panes.captured import DOCUMENT, HOT, PANES, PICTURE, RACK, STRAGGLER, documented, pane
from tests.screen.scenes import scene_of


def test_the_committed_panes_are_those_of_today() -> None:
    """If the change is meant: make generate, and look at the difference."""
    assert HOT.read_text(encoding="utf-8") == PANES[HOT.stem]()
    text = DOCUMENT.read_text(encoding="utf-8")
    assert {HOT.stem, *re.findall("<!-- pane (.+) -->", text)} == PANES.keys()
    assert documented(text) == text
    # The markup of the picture is that of the library's version, and not compared.
    drawn = PICTURE.read_text(encoding="utf-8")
    words = html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", drawn, flags=re.DOTALL)).split()
    assert set(pane(STRAGGLER, 100, 24).split()) <= set(words)
    assert "url(http" not in drawn and "@import" not in drawn


def test_the_help_explains_the_states_of_the_document_and_fits_a_small_terminal() -> None:
    helped = "\n".join(line.plain for line in help_lines(TextLayout(80, 24)))
    table = DOCUMENT.read_text(encoding="utf-8").split("| state | meaning |")[1].split("\n\n")[0]
    states = re.findall(r"`([^`]+)`", "".join(re.findall("^\\| (`.*?) \\|", table, re.MULTILINE)))
    assert len(states) > 10
    assert [state for state in states if not re.search(rf"^  .*\b{state}\b", helped, re.MULTILINE)] == []
    assert helped.count("\n") < 24


@pytest.mark.parametrize(
    ("phases", "inhibited", "shown"),
    [
        ((), 0, "alerts none"),
        ((Phase.PENDING, Phase.PENDING), 0, "alerts 2 pending"),
        ((Phase.FIRING, Phase.PENDING), 0, "alerts 1 firing, 1 pending"),
        ((Phase.FIRING,), 3, "alerts 1 firing, 3 inhibited"),
    ],
)
def test_pending_and_inhibited_alerts_are_counted_beside_those_that_fire(
    phases: tuple[Phase, ...], inhibited: int, shown: str
) -> None:
    effects = [Alert("B", (), Phase.FIRING, 1.0, 0.0, inhibited_by="A")] * inhibited
    node = NodeView("n", "from its agent", alerts=[*(Alert("A", (), phase, 1.0, 0.0) for phase in phases), *effects])
    assert node_line([node], TextLayout(60, None, ASCII)).plain.startswith(f"{shown}  power")


def test_a_narrow_terminal_names_the_cause_of_an_effect() -> None:
    effect = Alert("InfinibandBelowFabric", (), Phase.FIRING, 1.0, 0.0, inhibited_by="InfinibandPortDown")
    (line,) = alert_lines([NodeView("n", "from its agent", alerts=[effect])], 60.0, TextLayout(60))
    assert line.plain.startswith("· InfinibandBelowFabric    effect of InfinibandPortDown ")


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_each_tone_has_a_sign_of_its_own_and_the_help_names_it(glyphs: Glyphs) -> None:
    helped = help_lines(TextLayout(80, 24, glyphs))[-1].plain
    for tone, meaning in zip(
        Tone, ("critical", "warning", "pending", "not known", "note", "nothing fires"), strict=True
    ):
        assert f"{glyphs.marks[tone]} {meaning}" in helped
    assert len(set(glyphs.marks)) == len(glyphs.marks) == len(Tone)


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 240),
    height=st.integers(1, 70),
    sort=st.sampled_from(Sort),
    glyphs=st.sampled_from((UNICODE, ASCII)),
    which=st.integers(0, 4),
)
@example(width=120, height=40, sort=Sort.TROUBLE, glyphs=UNICODE, which=2)
def test_every_size_gives_the_terminals_lines_and_none_too_long(width, height, sort, glyphs, which) -> None:
    scene = RACK()
    gpu = scene.nodes[1].gpus[3]
    states = (
        UiState(sort=sort),
        UiState(is_helping=True),
        UiState(zoom=OneGpu(gpu.key)),
        UiState(zoom=OneJob("slurm", "6006"), selected=gpu.key),
        UiState(filter="nothing like this", is_typing=True),
    )
    lines, _ = draw(scene, states[which], TextLayout(width, height, glyphs))
    assert len(lines) == height
    assert max(cell_len(line.plain) for line in lines) <= width
    if glyphs is ASCII:
        assert all(line.plain.isascii() for line in lines)


def test_what_is_absent_is_a_dash_and_never_a_zero() -> None:
    """A GPU that tells nothing but its name, beside one that is idle: its zero is a value."""
    silent, idle = Gpu("0", "GPU-a"), Gpu("1", "GPU-b")
    readings = [reading("coldplate_gpu_up", 1.0, silent), reading("coldplate_gpu_up", 1.0, idle)]
    readings += [reading(f"coldplate_gpu_{name}", 0.0, idle) for name in ("utilization_ratio", "power_watts")]
    keeper = ViewKeeper(1.0)
    for wall in (1e9, 1e9 + 1.0):
        snapshot = snapshot_of(1, Instant(5.0, wall), readings)
        scene = keeper.scene([NodeSample("n", "here", snapshot, mono=5.0)], 5.0)
    rows = [line.plain for line in draw(scene, UiState(), TextLayout(200, 24))[0]]
    absent, zero = (next(line for line in rows if re.match(rf"[?✔]   {index} ", line)) for index in "01")
    assert re.match(r"\?   0 -  ", absent), "no state is made up"
    assert not re.search(r"[a-z\d]", absent[5:])
    assert "neither utilization nor power can be read: GPU 0" in "\n".join(rows)
    assert "0%" in zero
    assert "0W" in zero
    assert "alerts n/a" in "\n".join(rows)
    zoomed = "\n".join(line.plain for line in draw(scene, UiState(zoom=OneGpu(("n", "GPU-a"))), TextLayout(80, 40))[0])
    assert "power         -" in zoomed
    assert "throttled by  -" in zoomed
    assert "nothing" not in zoomed
    assert "BUSY the last" not in zoomed


def test_a_gpu_alone_has_the_whole_description_of_its_alerts() -> None:
    scene = scene_of("gpu-lost", 100, rules=True, every=10)
    lost = scene.nodes[0].gpus[3].key
    lines, _ = draw(scene, UiState(zoom=OneGpu(lost)), TextLayout(80, 50))
    text = " ".join(line.plain.strip() for line in lines)
    assert "lost or hangs; its other series, and the alerts based on them, have ended." in text


def test_a_power_limit_of_four_digits_is_whole_or_absent() -> None:
    limits = set()
    for width in range(20, 200, 5):
        drawn = "\n".join(line.plain for line in draw(scene_of("leak", 10), UiState(), TextLayout(width, 24))[0])
        limits |= {limit for _, limit in re.findall(r"(\d{3,})/(\d+[^ ]*)", drawn)}
    assert limits == {"1200W", "185G"}


def test_the_head_line_names_the_node_whose_recording_is_played() -> None:
    replayed = [reading("coldplate_replay_info", 1.0, Node(), node="node9", recorded="2026-11-21T08:00:00Z")]
    scene = ViewKeeper(1.0).scene([NodeSample("n", "here", snapshot_of(1, Instant(5.0, 1e9), replayed), mono=5.0)], 5.0)
    assert "REPLAY of node9" in draw(scene, UiState(), TextLayout(80, 24))[0][0].plain


def test_the_gpus_of_a_node_that_does_not_answer_are_unknown() -> None:
    scene = ViewKeeper(1.0).scene([NodeSample("n", "from its agent", problem="no answer: Connection refused")], 5.0)
    lines = [line.plain for line in draw(scene, UiState(), TextLayout(80, 24))[0]]
    assert "GPUs unknown" in lines[0] and "no GPU" not in lines[0]
    assert "alerts n/a" in lines[2]


def test_a_node_that_stops_answering_keeps_its_name() -> None:
    keeper, up = ViewKeeper(1.0), [reading("coldplate_gpu_up", 1.0, Gpu("0", "GPU-a"))]
    answer = NodeSample("10.0.0.7", "from its agent", snapshot_of(1, Instant(5.0, 1e9), up), mono=5.0, node="node7")
    silent = NodeSample("10.0.0.7", "from its agent", problem="no answer: Connection refused")
    assert [keeper.scene([sample], 5.0).nodes[0].name for sample in (silent, answer, silent)] == [
        "10.0.0.7",
        "node7",
        "node7",
    ]


def test_names_of_others_cannot_steer_the_terminal() -> None:
    gpu = Gpu("0", "GPU-a")
    job = {"scheduler": "slurm", "job_id": "1", "user": "eve\x1b[2J\x9b", "name": "a\nb\u202e", "mig": "0"}
    readings = [reading("coldplate_gpu_up", 1.0, gpu), reading("coldplate_gpu_job_info", 1.0, gpu, **job)]
    scene = ViewKeeper(1.0).scene(
        [NodeSample("n\x1b]0;x\x07", "here", snapshot_of(1, Instant(5.0, 1e9), readings))], 0.0
    )
    for state in (UiState(), UiState(zoom=OneGpu(("n\x1b]0;x\x07", "GPU-a")))):
        for line in draw(scene, state, TextLayout(160, 30))[0]:
            assert line.plain.isprintable(), line.plain


def test_a_job_that_shares_its_gpu_has_no_busy_share_and_no_power_of_its_own() -> None:
    gpu = Gpu("0", "GPU-a")
    labels = {"scheduler": "slurm", "user": "ada", "mig": "0"}
    held = [reading("coldplate_gpu_shared_job_info", 1.0, gpu, **labels, job_id=job_id) for job_id in ("7", "8")]
    snapshot = snapshot_of(1, Instant(5.0, 1e9), [reading("coldplate_gpu_up", 1.0, gpu), *held])
    lines, _ = draw(ViewKeeper(1.0).scene([NodeSample("n", "here", snapshot)], 0.0), UiState(), TextLayout(80, 30))
    assert [" ".join(line.plain.split()) for line in lines if "ada" in line.plain] == [
        f"{job} ada - GPU 0 shared" for job in ("7", "8")
    ]


def test_a_job_with_several_instances_of_a_gpu_has_that_gpu_once() -> None:
    gpu = Gpu("0", "GPU-a")
    labels = {"scheduler": "slurm", "job_id": "7", "user": "ada", "mig": "1"}
    held = [reading("coldplate_gpu_job_info", 1.0, gpu, **labels, gpu_instance=instance) for instance in ("1", "2")]
    snapshot = snapshot_of(1, Instant(5.0, 1e9), [reading("coldplate_gpu_up", 1.0, gpu), *held])
    scene = ViewKeeper(1.0).scene([NodeSample(node, "here", snapshot) for node in ("n1", "n2")], 0.0)
    text = "\n".join(line.plain for line in draw(scene, UiState(), TextLayout(160, 30))[0])
    assert "2 GPUs of 2 nodes" in text


def console(**settings: object) -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, **settings)  # type: ignore[arg-type]


def test_colour_is_never_the_only_sign_and_no_color_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = draw(scene_of("straggler", 920, True), UiState(), TextLayout(80, 24))
    colours = Painter(console(color_system="standard"), "utf-8").paint(lines)
    assert b"\x1b[33m" in colours
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Painter(console(), "utf-8").paint(lines)
    assert not re.search(rb"[\[;](3|4|9|10)\dm", plain)
    assert "▲   5 held".encode() in plain


def test_a_picture_is_one_synchronized_update_of_the_lines_that_changed() -> None:
    painter = Painter(console(), "utf-8")
    lines, _ = draw(scene_of("straggler", 920, True), UiState(), TextLayout(80, 24))
    whole = painter.paint(lines)
    assert whole.startswith(b"\x1b[?2026h\x1b[2J")
    assert whole.endswith(b"\x1b[?2026l")
    assert b"\x1b[K" in whole
    assert not re.search(rb"[^m]\x1b\[K", whole)  # behind a full line it would erase its last sign
    assert painter.paint(lines) == b""
    helped, _ = draw(scene_of("straggler", 920, True), UiState(is_helping=True), TextLayout(80, 24))
    assert b"\x1b[2J" not in painter.paint(helped)
    painter.forget()
    assert painter.paint(helped).startswith(b"\x1b[?2026h\x1b[2J")


def test_output_without_unicode_gets_ascii_and_wide_signs_count_as_two_cells() -> None:
    assert glyphs_for("utf-8", {}) is UNICODE
    assert glyphs_for("ascii", {}) is ASCII
    assert glyphs_for("iso-8859-1", {}) is ASCII
    assert glyphs_for(None, {}) is ASCII
    assert glyphs_for("utf-8", {"LC_ALL": "C", "LANG": "en_US.UTF-8"}) is ASCII
    assert glyphs_for("utf-8", {"LC_ALL": "", "LC_CTYPE": "C.UTF-8", "LANG": "C"}) is UNICODE
    layout = TextLayout(10)
    assert cell_len(layout.pad("作業作業作業作業", 9)) == 9
    assert cell_len(layout.line("作業作業作業作業").plain) <= 10


# -- Keys and the mouse ------------------------------------------------------------------------------------------------


class Person:
    """Presses keys before a scene of a fixed size."""

    def __init__(self, scene: ScreenData, height: int = 24) -> None:
        self.scene = scene
        self.layout = TextLayout(100, height)
        self.state = UiState()

    def does(self, *events: Press | str) -> Person:
        for event in events:
            _, screen = draw(self.scene, self.state, self.layout)
            self.state = press(self.state, Press(event) if isinstance(event, str) else event, screen)
        return self

    @property
    def lines(self) -> list[str]:
        return [line.plain.rstrip() for line in draw(self.scene, self.state, self.layout)[0]]

    @property
    def selected(self) -> str:
        gpus = {gpu.key: f"{gpu.node} {gpu.index}" for node in self.scene.nodes for gpu in node.gpus}
        return gpus.get(self.state.selected or ("", ""), "")

    @property
    def rows(self) -> list[str]:
        _, screen = draw(self.scene, self.state, self.layout)
        gpus = {gpu.key: gpu.index for node in self.scene.nodes for gpu in node.gpus}
        return [gpus.get(key, key[0]) for key in screen.rows]


def straggler() -> Person:
    return Person(scene_of("straggler", 920, True))


def test_arrows_and_clicks_select_and_zoom_into_a_gpu_and_escape_leads_back() -> None:
    person = straggler().does("down")
    assert person.selected == "node7 5"
    assert person.does("up").selected == "node7 5"
    assert person.does("end").selected == "node7 7"
    assert person.does("j", "k").selected == "node7 6"
    person = straggler().does("enter")
    assert isinstance(person.state.zoom, OneGpu)
    assert person.lines[1].startswith("GPU 5  held")
    assert person.does("down").lines[1].startswith("GPU 0  computing")
    assert person.does("escape").state.zoom is None
    person = straggler()
    line = next(place for place, text in enumerate(person.lines) if text.startswith("✔   2 "))
    assert person.does(Press("click", line)).selected == "node7 2"
    assert person.state.zoom is None
    assert person.does(Press("click", line)).lines[1].startswith("GPU 2 ")
    assert person.does("escape", Press("click", 0)).selected == "node7 2"


def test_sorting_goes_through_all_orders_and_keys_help_freeze_and_quit() -> None:
    person = straggler()
    assert person.rows[0] == "5"
    rows_by_order = {}
    for order in list(Sort)[1:]:
        person.does("s")
        assert person.state.sort is order
        rows_by_order[order] = person.rows
    assert rows_by_order[Sort.INDEX] == list("01234567")
    assert rows_by_order[Sort.BUSY][-1] == rows_by_order[Sort.POWER][-1] == rows_by_order[Sort.TEMPERATURE][-1] == "5"
    assert person.does("s").state.sort is Sort.TROUBLE
    assert person.does("r").rows[-1] == "5"
    person = straggler().does("?")
    assert person.lines[0].startswith("coldplate top: keys")
    assert person.does("x").state.is_helping is False
    assert "FROZEN" in person.does("space").lines[0]
    assert person.does("m").state.mouse is False
    assert person.does("unknown").state.has_quit is False
    assert person.does("q").state.has_quit is True
    assert straggler().does("?", "q").state.has_quit is True


def test_a_filter_is_typed_and_cleared_and_a_silent_node_is_not_zoomed_into() -> None:
    person = Person(RACK(), 40).does("/", *"NODE2", "space", *"comp", "enter")
    assert person.state.filter == "NODE2 comp"
    assert sorted(person.rows) == ["0", "1", "2", "4", "5", "6", "7"]
    assert person.does("/", "backspace", "x", "enter").rows == []
    assert any("no GPU matches" in line for line in person.lines)
    assert len(person.does("escape").rows) == 25
    assert person.does("/", *"q", "escape").state.has_quit is False
    assert person.state.filter == ""
    person = Person(RACK(), 40).does("down", "down", "enter")
    assert person.state.selected == ("node4", "")
    assert person.state.zoom is None


def test_zoom_into_a_job_shows_its_gpus_alone() -> None:
    person = Person(scene_of("two-jobs", 60)).does("end", "g")
    assert person.state.zoom == OneJob("slurm", "5002")
    assert person.rows == ["4", "5", "6", "7"]
    assert not any("5001" in line for line in person.lines[3:])
    assert len(person.does("g").rows) == 8


def test_the_wheel_scrolls_rows_that_do_not_fit() -> None:
    person = Person(RACK(), 14)
    assert not any(line.startswith("✔ node3   7") for line in person.lines)
    for _ in range(10):
        person.does(Press("scroll", 3))
    assert any(line.startswith("✔ node3   7") for line in person.lines)
    line = next(place for place, text in enumerate(person.lines) if text.startswith("✔ node3   6"))
    assert person.does(Press("click", line)).selected == "node3 6"


SENT = [
    (b"q", [Press("q")]),
    (b"\x1b[A\x1bOB", [Press("up"), Press("down")]),
    (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", [Press("page-up"), Press("page-down"), Press("home"), Press("end")]),
    (b"\r \x7f", [Press("enter"), Press("space"), Press("backspace")]),
    ("é語".encode(), [Press("é"), Press("語")]),
    (b"\x1b[<0;12;7M", [Press("click", 6)]),
    (b"\x1b[<0;12;7m\x1b[<2;1;1M", []),
    (b"\x1b[<64;1;1M\x1b[<65;1;1M", [Press("scroll", -3), Press("scroll", 3)]),
    (b"\x1b[1;5A\x1b[?1;2c\x01j", [Press("j")]),
    (b"\xff\x80j", [Press("\ufffd"), Press("\ufffd"), Press("j")]),
]


@pytest.mark.parametrize(("sent", "meant"), SENT)
def test_bytes_are_keys_whole_and_one_by_one(sent: bytes, meant: list[Press]) -> None:
    assert KeyReader().feed(sent) == meant
    reader = KeyReader()
    assert [event for byte in sent for event in reader.feed(bytes([byte]))] == meant
    assert not reader.is_waiting


def test_an_escape_alone_is_the_key_once_nothing_follows() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.is_waiting
    assert reader.flush() == [Press("escape")]
    assert not reader.is_waiting
    assert reader.feed(b"[A") == [Press("["), Press("A")]
