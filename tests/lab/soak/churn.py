"""What goes on at a node all the time: devices, jobs, rules and neighbours that come and go, each time others."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from tests.lab.drill.drilled_daemon import GPUS, Drill

JOB_GPUS = range(4)
XID_CODES = (31, 43, 63, 94)
RULE_COUNT = 40


class Churn:
    """Changes one thing at each `step`, and goes round. Use as a context manager: jobs end with it."""

    def __init__(self, drill: Drill) -> None:
        self._drill = drill
        self._jobs: list[subprocess.Popen[bytes]] = []
        self._driver: dict[str, Sequence[str]] = {}
        self._steps = self._go_round()
        self.rounds = 0

    def __enter__(self) -> Churn:  # noqa: PYI034 Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self._end_jobs()

    def step(self) -> None:
        next(self._steps)()

    def kill_the_worker(self) -> None:
        os.kill(self._drill.worker, signal.SIGKILL)

    def _go_round(self) -> Iterator[Callable[[], object]]:
        for turn in count(1):
            gpu = turn % GPUS
            yield lambda gpu=gpu: self._tell("lost", f"lost {gpu}")
            yield lambda turn=turn: self._begin_jobs(turn)
            yield lambda: self._tell("lost")
            yield lambda turn=turn: self._give_rules(turn)
            yield self._drill.take_port
            yield lambda turn=turn: self._log_an_xid(turn)
            yield self._drill.bring_port
            yield lambda: self._drill.behave(receiver="reset", peer="hang", controller="failing")
            yield lambda: self._drill.hang_up("nonsense: 1\n")
            yield self._drill.behave
            yield lambda turn=turn: self._configure(turn)
            yield lambda turn=turn: self._begin_jobs(-turn)
            yield lambda gpu=gpu: self._tell("lost", f"hang-reads {gpu}")
            yield self._take_the_rules
            yield lambda: self._tell("lost")
            yield self._end_jobs
            self.rounds = turn

    def _tell(self, subject: str, *commands: str) -> None:
        """Give the driver these commands beside those of other subjects."""
        self._driver[subject] = commands
        self._drill.driver(*(command for each in self._driver.values() for command in each))

    def _begin_jobs(self, number: int) -> None:
        self._end_jobs()
        surroundings = {"SLURM_JOB_ID": str(100_000 + number), "SLURM_JOB_NAME": f"train-{number}"}
        self._jobs = [subprocess.Popen(["sleep", "3600"], env={**os.environ, **surroundings}) for _ in JOB_GPUS]
        self._tell("jobs", *(f"process {gpu} {job.pid}" for gpu, job in zip(JOB_GPUS, self._jobs, strict=True)))

    def _end_jobs(self) -> None:
        for job in self._jobs:
            job.kill()
            job.wait()
        self._jobs = []
        self._tell("jobs")

    def _log_an_xid(self, turn: int) -> None:
        # A line that is appended is an event; the same line in a file that is written anew would be none.
        with (self._drill.folder / "control").open("a") as file:
            file.write(f"xid {turn % GPUS} {XID_CODES[turn % len(XID_CODES)]}\n")

    def _give_rules(self, turn: int) -> None:
        (self._drill.folder / "site-more.yml").write_text(rules_of(f"t{turn}"))
        self._reload()

    def _take_the_rules(self) -> None:
        (self._drill.folder / "site-more.yml").unlink(missing_ok=True)
        self._reload()

    def _configure(self, turn: int) -> None:
        self._drill.hang_up(self._drill.good.replace("notify:\n", f"notify:\n  labels: {{turn: 't{turn}'}}\n"))

    def _reload(self) -> None:
        os.kill(self._drill.pid, signal.SIGHUP)


def rules_of(name: str) -> str:
    """A rule file with rules of this name, some of which fire."""
    rules = "".join(
        f"""
  - alert: Churn{name}x{place}
    expr: avg_over_time(coldplate_gpu_temperature_celsius{{gpu="{place % GPUS}"}}[1m]) > {place + 20}
    labels: {{turn: "{name}"}}
    annotations: {{summary: "{name}: {{{{ $value }}}} degrees"}}"""
        for place in range(RULE_COUNT)
    )
    return f"groups:\n- name: churn-{name}\n  rules:{rules}\n"
