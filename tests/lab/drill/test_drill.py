"""The drill itself: a fault comes about, and the page shows it. Nothing is timed."""

from __future__ import annotations

import os

import pytest

from tests.lab.bench.report import CannotRunError, Progress
from tests.lab.bench.rig import QUICK, Rig
from tests.lab.drill import reliability
from tests.lab.drill.drilled_daemon import Page, drilled
from tests.lab.drill.faults import AT_START, PLAIN
from tests.waiting import wait_until

TRIED = ("one GPU hangs", "garbage in all files of a port", "configuration: a FIFO", "the peer answers garbage")


def test_faults_show_on_the_page_and_are_over_with_their_cure() -> None:
    def well(page: Page | None) -> bool:
        return page is not None and page.total("coldplate_rack_peer_up") == 1 and page.total("coldplate_gpu_up") == 8

    try:
        with Rig(QUICK, Progress()) as rig, drilled(rig) as drill:
            for fault in (each for each in PLAIN if each.title in TRIED):
                wait_until(lambda: well(drill.page()))
                before = drill.page()
                assert before is not None and fault.noticed is not None and fault.cure is not None
                assert not fault.noticed(before, before)
                fault.provoke(drill)
                wait_until(lambda: (now := drill.page()) is not None and fault.noticed(before, now))  # noqa: B023
                fault.cure(drill)
                wait_until(lambda: (now := drill.page()) is not None and not now.differs(before, ("coldplate_gpu_up",)))  # noqa: B023
            assert drill.healthy()
    except CannotRunError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{error}, and CI=true")
        pytest.skip(str(error))


def test_the_documents_table_has_every_fault() -> None:
    text = reliability.DOCUMENT.read_text()
    for fault in (*PLAIN, AT_START):
        assert f"| {fault.title} | {fault.expected} |" in text, f"run `make drill`: {fault.title} is new, or another"
