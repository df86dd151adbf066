"""What keys and the mouse do to the picture."""

from __future__ import annotations

from agent.commands.top.screen.frame_layout import draw
from agent.commands.top.screen.keys import Click, KeyPress, Press, Scroll
from agent.commands.top.screen.look import Look
from agent.commands.top.screen.scene import Scene
from agent.commands.top.screen.ui_state import OneGpu, OneJob, Sort, UiState, press
from tests.screen.panes.captured import RACK
from tests.screen.scenes import scene_of


class Person:
    """Presses keys before a scene of a fixed size."""

    def __init__(self, scene: Scene, height: int = 24) -> None:
        self.scene = scene
        self.look = Look(100, height)
        self.state = UiState()

    def does(self, *events: Press | str) -> Person:
        for event in events:
            _, screen = draw(self.scene, self.state, self.look)
            self.state = press(self.state, KeyPress(event) if isinstance(event, str) else event, screen)
        return self

    @property
    def lines(self) -> list[str]:
        return [line.plain.rstrip() for line in draw(self.scene, self.state, self.look)[0]]

    @property
    def selected(self) -> str:
        gpus = {gpu.key: f"{gpu.node} {gpu.index}" for node in self.scene.nodes for gpu in node.gpus}
        return gpus.get(self.state.selected or ("", ""), "")

    @property
    def rows(self) -> list[str]:
        _, screen = draw(self.scene, self.state, self.look)
        gpus = {gpu.key: gpu.index for node in self.scene.nodes for gpu in node.gpus}
        return [gpus.get(key, key[0]) for key in screen.rows]


def straggler() -> Person:
    return Person(scene_of("straggler", 320, True))


def test_arrows_select_and_stop_at_the_ends() -> None:
    person = straggler().does("down")
    assert person.selected == "node7 5"
    assert person.does("up").selected == "node7 5"
    assert person.does("end").selected == "node7 7"
    assert person.does("j", "k").selected == "node7 6"


def test_sorting_goes_through_all_orders_and_back() -> None:
    person = straggler()
    assert person.rows[0] == "5"
    found = {}
    for order in list(Sort)[1:]:
        person.does("s")
        assert person.state.sort is order
        found[order] = person.rows
    assert found[Sort.INDEX] == list("01234567")
    assert found[Sort.BUSY][-1] == found[Sort.POWER][-1] == found[Sort.TEMPERATURE][-1] == "5"
    assert person.does("s").state.sort is Sort.TROUBLE
    assert person.does("r").rows[-1] == "5"


def test_a_filter_is_typed_kept_and_cleared() -> None:
    person = Person(RACK(), 40).does("/", *"NODE2", "space", *"wait", "enter")
    assert person.state.filter == "NODE2 wait"
    assert sorted(person.rows) == ["0", "1", "2", "4", "5", "6", "7"]
    assert person.does("/", "backspace", "x", "enter").rows == []
    assert any("no GPU matches" in line for line in person.lines)
    assert len(person.does("escape").rows) == 25
    assert person.does("/", *"q", "escape").state.has_quit is False
    assert person.state.filter == ""


def test_zoom_into_a_gpu_follows_the_arrows_and_escape_leads_back() -> None:
    person = straggler().does("enter")
    assert isinstance(person.state.zoom, OneGpu)
    assert person.lines[1].startswith("GPU 5  behind")
    assert person.does("down").lines[1].startswith("GPU 0  ok")
    assert person.does("escape").state.zoom is None


def test_zoom_into_a_job_shows_its_gpus_alone() -> None:
    person = Person(scene_of("two-jobs", 60)).does("end", "g")
    assert person.state.zoom == OneJob("slurm", "5002")
    assert person.rows == ["4", "5", "6", "7"]
    assert not any("5001" in line for line in person.lines[3:])
    assert len(person.does("g").rows) == 8


def test_a_click_selects_and_a_second_one_zooms() -> None:
    person = straggler()
    line = next(place for place, text in enumerate(person.lines) if text.startswith("✔   2 "))
    assert person.does(Click(line, 5)).selected == "node7 2"
    assert person.state.zoom is None
    assert person.does(Click(line, 5)).lines[1].startswith("GPU 2 ")
    assert person.does("escape", Click(0, 0)).selected == "node7 2"


def test_the_wheel_scrolls_rows_that_do_not_fit() -> None:
    person = Person(RACK(), 14)
    assert not any(line.startswith("✔ node3   7") for line in person.lines)
    for _ in range(10):
        person.does(Scroll(3))
    assert any(line.startswith("✔ node3   7") for line in person.lines)
    line = next(place for place, text in enumerate(person.lines) if text.startswith("✔ node3   6"))
    assert person.does(Click(line, 1)).selected == "node3 6"


def test_a_silent_node_can_be_selected_but_not_zoomed_into() -> None:
    person = Person(RACK(), 40).does("down", "down", "enter")
    assert person.state.selected == ("node4", "")
    assert person.state.zoom is None


def test_help_freeze_mouse_and_quit() -> None:
    person = straggler().does("?")
    assert person.lines[0] == "coldplate top: keys"
    assert person.does("x").state.is_helping is False
    assert "FROZEN" in person.does("space").lines[0]
    assert person.does("m").state.mouse is False
    assert person.does("unknown").state.has_quit is False
    assert person.does("q").state.has_quit is True
    assert straggler().does("?", "q").state.has_quit is True
