"""What rules cost on an 8-GPU, 8-port node with an hour of history.

These are the rules that an agent evaluates by default where no rack is configured. A synthetic node is played for
more than an hour, faster than time, so that every window is as full as it gets.
"""

import time
from pathlib import Path
from statistics import fmean, median

from agent.backends.synthetic import load_scenario
from alerts.packs import ADVICE, is_about_racks
from tests.lab.bench.report import Line, Section, at_most, mebibytes, milliseconds
from tests.lab.bench.rig import Rig
from tests.lab.score.play import Play, load_pack

SCENARIO = "healthy-training"
HISTORY = 3700
QUICK_HISTORY = 400
LIMIT = 0.005
ROUND = 0.001
WINDOWS = 25.0


def whole_pack(rig: Rig) -> Section:
    """CPU time of evaluations, medians of repeats, and the memory of windows."""
    history = HISTORY if rig.pace.repeats >= 25 else QUICK_HISTORY
    rig.progress.say(f"rules: playing {history / 60:.0f} minutes of a node, then evaluating ...")
    pack = [file for file in load_pack() if Path(file.path).stem != ADVICE and not is_about_racks(file.path)]
    play = Play(load_scenario(SCENARIO), pack).until(history)
    rounds = []
    for _ in range(60):
        snapshot = play.sample()
        began = time.thread_time()
        play.judge(snapshot)
        rounds.append(time.thread_time() - began)
    engine, later = play.engine, play.now.wall
    takes, packs = [], []
    for _ in range(rig.pace.repeats):
        later += 1.0
        began = time.thread_time()
        engine.windows.ingest_round(snapshot.frames, later)
        between = time.thread_time()
        for _, group in engine.groups():
            assert not group.evaluate(engine.windows, later).failures
        takes.append(between - began)
        packs.append(time.thread_time() - between)
    groups = [group for file in pack for group in file.groups]
    lines = (
        at_most("the whole pack, every group at once", median(packs), LIMIT, milliseconds),
        Line("  taking in a snapshot", milliseconds(median(takes))),
        at_most("a round as it comes, groups in turns, with taking in, mean", fmean(rounds), ROUND, milliseconds),
        at_most("windows", engine.windows.bytes / 2**20, WINDOWS, mebibytes),
    )
    rules = sum(len(group.rules) for group in groups)
    return Section(f"Rules: {rules} rules in {len(groups)} groups, {history / 60:.0f} minutes", lines)
