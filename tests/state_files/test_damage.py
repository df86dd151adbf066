"""A state file that is damaged anywhere is never taken up: nobody believes half of what it says."""

import json
import logging
import os
import random
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.lib.state_files import MOST, DamagedError, load_state, read_whole
from agent.model import Alert, Gpu, GpuIdentity, Phase
from agent.sampler.inventory import Inventory
from alerts import alert_state
from alerts.alert_state import ArchivedSeries
from alerts.lifecycle import AlertRecord

LOG = logging.getLogger("coldplate.rules")


def identity(number: int) -> GpuIdentity:
    gpu = Gpu(str(number), f"GPU-0000-{number}")
    return GpuIdentity(gpu, f"0000:{number:02x}:00.0", f"165{number}", "NVIDIA H100", (("minor", str(number)),))


def inventory_content() -> bytes:
    written: list[bytes] = []
    inventory = Inventory(Path("unused"), lambda _path, content: written.append(content))
    inventory.enumerate([identity(0), identity(1)], None)
    inventory.enumerate([identity(0)], None)
    return written[-1]


def known_to_inventory(content: bytes, folder: Path) -> object:
    path = folder / "inventory.state"
    path.write_bytes(content)
    inventory = Inventory(path, lambda _path, _content: None)
    return (inventory.gpus, inventory.replaced) if inventory.gpus or inventory.replaced else None


def alerts_content() -> bytes:
    alert = Alert(
        "GpuHot", (("alertname", "GpuHot"), ("gpu", "3")), Phase.FIRING, 91.0, 10.0, 20.0, None, {"summary": "hot"}
    )
    return alert_state.encode(30.0, "devices", [("group", ("GpuHot", ()), AlertRecord(alert))], ["a"])


def windows_content() -> bytes:
    series = [ArchivedSeries((("__name__", "x"),), True, array("d", [1.0, 2.0]), array("d", [3.0, 4.0]))]
    return alert_state.encode_windows(5.0, "devices", series)


def taken_up(decode: Callable[[bytes], object]) -> Callable[[bytes, Path], object]:
    def understand(content: bytes, folder: Path) -> object:
        path = folder / "some.state"
        path.write_bytes(content)
        return load_state(path, decode, LOG, "")

    return understand


FILES: dict[str, tuple[Callable[[], bytes], Callable[[bytes, Path], object]]] = {
    "inventory": (inventory_content, known_to_inventory),
    "alerts": (alerts_content, taken_up(alert_state.decode)),
    "windows": (windows_content, taken_up(alert_state.decode_windows)),
}


def damages(content: bytes) -> Iterator[bytes]:
    """Every byte changed, left out and doubled; the file cut at each place; pieces moved, emptied and repeated."""
    dice = random.Random(len(content))
    for place, byte in enumerate(content):
        yield content[:place] + bytes((byte ^ 1 << dice.randrange(8),)) + content[place + 1 :]
        yield content[:place] + content[place + 1 :]
        yield content[:place] + content[place : place + 1] + content[place:]
        yield content[:place]
        end = place + dice.randrange(2, 64)
        yield content[:place] + bytes(min(end, len(content)) - place) + content[end:]
    yield content + content
    yield content + b"\n"
    yield content.partition(b"\n")[2]


@pytest.mark.parametrize("kind", FILES)
def test_no_damaged_content_is_used(kind: str, tmp_path: Path) -> None:
    make, understand = FILES[kind]
    content = make()
    assert understand(content, tmp_path) is not None
    tried = 0
    for damaged in damages(content):
        if damaged != content:  # a byte beside one of its kind can be doubled or left out in two places
            tried += 1
            assert understand(damaged, tmp_path) is None, damaged
    assert tried > 500


def test_an_inventory_with_a_right_seal_but_wrong_content_is_not_used(tmp_path: Path) -> None:
    from agent.lib.state_files import seal
    from agent.sampler.inventory import FORM

    for body in (b"", b"[]", b"{}", b"[" * 100_000, json.dumps({"gpus": [{}], "replaced": {}}).encode(), b"\xff"):
        assert known_to_inventory(seal(FORM, body), tmp_path) is None
        assert (tmp_path / "inventory.damaged").exists()


def test_a_file_of_absurd_size_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "alerts.state"
    with path.open("wb") as file:
        file.truncate(MOST * 64)
    with pytest.raises(DamagedError, match="larger than"):
        read_whole(path)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["FIFO", "directory"])
def test_what_is_in_the_place_of_a_file_is_set_aside_unread(
    kind: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "some.state"
    make(path)
    if kind == "inventory":
        assert not Inventory(path, lambda _path, _content: None).gpus
    else:
        decode = alert_state.decode if kind == "alerts" else alert_state.decode_windows
        assert load_state(path, decode, LOG, "") is None
    assert not path.exists()
    assert (tmp_path / "some.damaged").exists()
