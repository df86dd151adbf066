"""Keys and mouse reports as terminals send them, whole and in pieces."""

from __future__ import annotations

import pytest

from agent.commands.top.screen.key_input import KeyPress, KeyReader, MouseClick, MouseScroll, Press

SENT = [
    (b"q", [KeyPress("q")]),
    (b"\x1b[A\x1bOB", [KeyPress("up"), KeyPress("down")]),
    (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", [KeyPress("page-up"), KeyPress("page-down"), KeyPress("home"), KeyPress("end")]),
    (b"\r \x7f", [KeyPress("enter"), KeyPress("space"), KeyPress("backspace")]),
    ("é語".encode(), [KeyPress("é"), KeyPress("語")]),
    (b"\x1b[<0;12;7M", [MouseClick(6, 11)]),
    (b"\x1b[<0;12;7m\x1b[<2;1;1M", []),
    (b"\x1b[<64;1;1M\x1b[<65;1;1M", [MouseScroll(-3), MouseScroll(3)]),
    (b"\x1b[1;5A\x1b[?1;2c\x01j", [KeyPress("j")]),
    (b"\xff\x80j", [KeyPress("\ufffd"), KeyPress("\ufffd"), KeyPress("j")]),
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
    assert reader.flush() == [KeyPress("escape")]
    assert not reader.is_waiting
    assert reader.feed(b"[A") == [KeyPress("["), KeyPress("A")]
