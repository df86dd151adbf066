"""The table of the scale study, from figures that are known, and its place in the document."""

from __future__ import annotations

from tests.lab.fleet.scale_study import BEGIN, END, PAGE, SHARD, Figures, put_in, table

FIGURES = Figures(
    nodes=1600, samples=2**10, series=2**20, memory=2**30, ingesting=0.5, disk=2.0**20,
    whole={("g", "slow"): 1.5, ("g", "fast"): 0.25, ("h", "other"): 0.125}, shard={("s", "own"): 0.5},
    store_memory=2**29, store_cpu=0.25, scraper_memory=2**27, scraper_cpu=0.125, store_disk=2.0**20,
)  # fmt: skip


def test_groups_are_sums_of_their_rules_and_carried_in_proportion() -> None:
    lines = table([FIGURES, FIGURES._replace(nodes=3200)], "lean", 1.0).splitlines()
    assert SHARD == 6400
    assert "| `g` | 1.750 | 1.750 | 3.50 |" in lines
    assert "| `all` | 1.875 | 1.875 | 3.75 |" in lines
    assert "| `s` | 0.500 | 0.500 | 1.00 |" in lines
    assert "| its memory, KiB a series | 1.0 | 1.0 |" in lines
    slowest = lines[lines.index("| rule | of | seconds |") + 2 :]
    assert [line.split("`")[1] for line in slowest] == ["slow", "own", "fast", "other"]


def test_the_table_takes_the_place_of_the_former_one() -> None:
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    once = put_in(page, "new\n")
    assert put_in(put_in(page, "old\n"), "new\n") == once
    assert f"{BEGIN}new\n{END}" in once
    assert len(once) < len(page)
