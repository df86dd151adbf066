"""Plays on several processors at once. Apart from `__main__`, which a process that is spawned cannot import."""

import gc
import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from alerts.rulefile import RuleFile
from tests.lab.score.play import Play, load_pack
from tests.lab.score.plays import Part
from tests.lab.score.scoring import Verdict, WorkVerdict, judge
from tests.lab.score.work import FAULTY, HEALTHY
from tests.lab.score.work_play import play_work, rules_for_jobs

PROCESSES = len(os.sched_getaffinity(0))
WORK_SECONDS = 67 * 3600.0
"""Of each healthy kind of work: a thousand hours of all."""
_pack: tuple[RuleFile, ...] = ()
"""The rules of a process that plays: read once in each."""


def play_all(wanted: Sequence[Part]) -> Iterator[tuple[Part, Verdict]]:
    """Each play and how it went, as they end; the longest ones begin first."""
    # Spawned and not forked: a process that is forked inherits whatever the parent has.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(PROCESSES, len(wanted)), context, _begin) as pool:
        orders = {pool.submit(_work, part): part for part in sorted(wanted, key=lambda part: -part.seconds)}
        try:
            for order in as_completed(orders):
                yield orders[order], order.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def work_all() -> Iterator[WorkVerdict]:
    """Play each healthy kind of work for `WORK_SECONDS`, and each other one once, as they end."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, context, _begin) as pool:
        yield from pool.map(_work_of, [*HEALTHY, *FAULTY])


def _work_of(name: str) -> WorkVerdict:
    """Play a kind of work; healthy work by ticks of five seconds, to play more of it."""
    fault, rules = FAULTY.get(name), rules_for_jobs(_pack)
    if fault is None:
        return WorkVerdict(name, WORK_SECONDS, tuple(play_work(HEALTHY[name], WORK_SECONDS, rules, 7, 5.0)))
    return WorkVerdict(name, fault.seconds, tuple(play_work(fault.work, fault.seconds, rules, 7)))


def _begin() -> None:
    """In each process that plays: Ctrl-C is the parent's, the sampler's log is nobody's."""
    global _pack
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("coldplate").setLevel(logging.CRITICAL)
    _pack = load_pack()
    # What a round makes and drops has no cycles; looking for some costs a tenth of the time.
    gc.disable()


def _work(part: Part) -> Verdict:
    gc.collect()
    expectation, scenario = part.expectation, part.scenario()
    play = Play(scenario, _pack, expectation.rack).until(part.seconds)
    play.close()
    hits, wrong = judge(expectation, scenario, play.firings)
    sent = tuple(play.sent.values())
    return Verdict(
        part.name, part.number, part.seconds, tuple(hits), tuple(wrong), tuple(play.failures), len(play.firings), sent
    )
