"""Whatever becomes of a worker's lines, the page stays true, and the GPUs are back when it is over.

Lines of a node that is well are dropped, doubled, cut, turned, mixed and forged on their way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle
from typing import Any
from zlib import crc32

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from agent.model import Kind, Snapshot
from tests.worker.swell import Bench, Mouth, node

GPUS = 2
ATOMS: list[Any] = [
    None, True, -1, 0, 1, 10**30, 1e308, float("nan"), "", "fast", "x" * 5000, "\x00", 'a"b', "{", [], {}, [[]],
]  # fmt: skip
HELLO = b'00000000 ["hello","nvml",[],[]]'


def turned(line: bytes, at: int) -> bytes:
    return line[:at] + bytes((line[at] ^ 1 << at % 8,)) + line[at + 1 :]


def forged(line: bytes, at: int, atom: Any) -> bytes:
    """A message of which a part was changed before it got its checksum."""
    tree = found = json.loads(line[9:])
    while isinstance(found, list) and found:
        place = at % len(found)
        if not isinstance(found[place], list):
            found[place] = atom
            break
        found, at = found[place], at // 3
    body = json.dumps(tree).encode()
    return b"%08x %b" % (crc32(body), body)


WAYS: dict[str, Callable[[bytes, int, Any], list[bytes]]] = {
    "as it was": lambda line, at, atom: [line],
    "dropped": lambda line, at, atom: [],
    "doubled": lambda line, at, atom: [line, line],
    "cut": lambda line, at, atom: [line[:at]],
    "beheaded": lambda line, at, atom: [line[at:]],
    "in two": lambda line, at, atom: [line[:at], line[at:]],
    "turned": lambda line, at, atom: [turned(line, at)],
    "with noise": lambda line, at, atom: [line + b"\x00\xff" * at, HELLO],
    "forged": lambda line, at, atom: [forged(line, at, atom), line],
}
"""What comes in the place of a line; `at` is a place in it."""
Spoils = list[tuple[str, int, Any]]


class Cable(Bench):
    """A main process's side whose worker's lines are spoilt, in turn, by these ways."""

    def __init__(self) -> None:
        self.spoils: Any = cycle([("as it was", 0, None)])
        super().__init__()

    def _start(self, argument: str) -> Mouth:
        mouth = super()._start(argument)
        whole = mouth.lines
        mouth.lines = lambda now: [each for line in whole(now) for each in self._spoilt(line)]  # type: ignore[method-assign]
        return mouth

    def _spoilt(self, line: bytes) -> list[bytes]:
        way, at, atom = next(self.spoils)
        return WAYS[way](line, at % len(line), atom)

    def ups(self) -> list[float]:
        return [each.value for each in self.snapshot.readings if each.metric.name == "coldplate_gpu_up"]


def faults(snapshot: Snapshot, page: bytes) -> list[str]:
    found = []
    lines = [line.rpartition(" ")[0] for line in page.decode().splitlines() if not line.startswith("#")]
    if len(set(lines)) != len(lines):
        found.append("a duplicate series")
    for reading in snapshot.readings:
        lowest, highest = reading.metric.span
        if not lowest <= reading.value <= highest or abs(reading.value) > 1e18:
            found.append(f"{reading.series!r} is {reading.value!r}")
        if reading.metric.kind is Kind.INFO and reading.value != 1:
            found.append(f"{reading.series!r} is {reading.value!r}")
    for _ in text_string_to_metric_families(page.decode()):
        pass
    return found


@settings(max_examples=12, deadline=None, phases=[Phase.generate])  # to shrink what fails takes minutes
@given(st.lists(st.tuples(st.sampled_from(sorted(WAYS)), st.integers(0, 9999), st.sampled_from(ATOMS)), min_size=1))
def test_a_worker_whose_lines_are_spoilt(spoils: Spoils) -> None:
    cable = Cable()
    node(cable, GPUS)
    well = {each.series for each in cable.snapshot.readings}
    cable.spoils = cycle(spoils)
    for _ in range(3):
        for channel, lane in cable.layouts:
            cable.sample(channel, lane)
        cable.turn()
        assert faults(cable.snapshot, cable.page) == []
    cable.spoils = cycle([("as it was", 0, None)])
    node(cable, GPUS)  # asked for everything anew, it says everything anew
    assert (cable.ups(), cable.lives) == ([1.0] * GPUS, 1)
    assert well <= {each.series for each in cable.snapshot.readings}
    assert faults(cable.snapshot, cable.page) == []
