"""Schedulers are found by being there, and their variables are those that the broker tells."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.backends.jobs.jobs_backend import SOURCES, is_wanted, refuse_unknown
from agent.backends.jobs.schedulers import SCHEDULERS, discover
from agent.broker.questions import KEYS
from tests.jobs.rig import Rig

COBALT = """
import re
from agent.backends.jobs.job import Job
from agent.backends.jobs.job import Scheduler


def job(env, within):
    number = env.get("COBALT_JOBID", "")
    return Job("cobalt", number, name=env.get("COBALT_JOBNAME", "")) if number and within in ("", number) else None


SCHEDULER = Scheduler(
    "cobalt", 15, (re.compile(r"/cobalt/job-(?P<id>[0-9]+)"),), frozenset({"COBALT_JOBID", "COBALT_JOBNAME"}), job
)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of schedulers with a file that nobody has registered anywhere."""
    made = tmp_path / "more_schedulers"
    made.mkdir()
    (made / "__init__.py").touch()
    (made / "cobalt.py").write_text(COBALT)
    monkeypatch.syspath_prepend(tmp_path)
    return made


def test_a_file_that_is_put_into_the_folder_is_a_scheduler(rig: Rig, folder: Path) -> None:
    found = discover([str(folder)], folder.name)
    rig.open(schedulers=(*SCHEDULERS, *found))
    rig.run(0, 100, "/cobalt/job-7/x", {"COBALT_JOBID": "7", "COBALT_JOBNAME": "n"})
    rig.look()
    assert list(rig.jobs()) == [("cobalt", "7")]
    assert (rig.holder()["user"], rig.holder()["name"]) == ("alice", "n")


def test_the_folder_of_the_agent_is_searched() -> None:
    home = Path(sys.modules["agent.backends.jobs.schedulers"].__file__ or "").parent
    files = {path.stem for path in home.glob("*.py")} - {"__init__"}
    assert {each.name for each in SCHEDULERS} == files
    assert [each.rank for each in SCHEDULERS] == sorted(each.rank for each in SCHEDULERS)


def test_every_scheduler_is_a_source_that_can_be_named() -> None:
    refuse_unknown(("all", *SOURCES), ("slurm",))
    assert is_wanted("lsf", ("all",))
    assert is_wanted("slurm", ("slurm",))
    assert not is_wanted("lsf", ("slurm",))
    with pytest.raises(ValueError, match="sources: 'cobalt' is unknown; use any of all, slurm"):
        refuse_unknown(("cobalt",), ())
    with pytest.raises(ValueError, match="trust_environment: 'all' is unknown; use any of slurm"):
        refuse_unknown((), ("all",))


def test_the_broker_returns_the_variables_of_every_scheduler_and_no_others() -> None:
    """They stand in agent/broker/questions.py, where the privileged process has them before it."""
    assert {name for each in SCHEDULERS for name in each.variables} == {key.decode() for key in KEYS}


def test_every_scheduler_says_where_its_facts_are_from() -> None:
    for each in SCHEDULERS:
        text = sys.modules[f"agent.backends.jobs.schedulers.{each.name}"].__doc__ or ""
        assert len(text) > 80, each.name
