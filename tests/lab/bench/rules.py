"""What rules cost on an 8-GPU, 8-port node with an hour of history.

These are the rules that an agent evaluates by default where no rack is configured. A synthetic node is played for
more than an hour, faster than time, so that every window is as full as it gets. `python -m tests.lab.bench.rules`
measures, in a process of its own; `whole_pack` starts it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from tests.lab.bench.report import CannotRunError, Line, Section, at_most, mebibytes, milliseconds
from tests.lab.bench.rig import ROOT, Rig

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
    command = [sys.executable, "-m", "tests.lab.bench.rules", str(history), str(rig.pace.repeats)]
    environment = {**rig.environment, "PYTHONPATH": f"{rig.site}:{ROOT}"}
    done = subprocess.run(command, env=environment, cwd=rig.directory, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise CannotRunError(f"rules could not be measured:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    lines = (
        at_most("the whole pack, every group at once", found["pack"], LIMIT, milliseconds),
        Line("  taking in a snapshot", milliseconds(found["take"])),
        at_most("a round as it comes, groups in turns, with taking in, mean", found["round"], ROUND, milliseconds),
        at_most("windows", found["bytes"] / 2**20, WINDOWS, mebibytes),
    )
    return Section(f"Rules: {found['rules']} rules in {found['groups']} groups, {history / 60:.0f} minutes", lines)


def main(history: int, repeats: int) -> int:
    from agent.backends.synthetic import load_scenario
    from alerts.packs import ADVICE, is_about_racks
    from tests.lab.score.play import Play, load_pack

    pack = [file for file in load_pack() if Path(file.path).stem != ADVICE and not is_about_racks(file.path)]
    play = Play(load_scenario(SCENARIO), pack).until(history)
    rounds = []
    for _ in range(60):
        snapshot = play.sample()
        began = time.thread_time()
        play.judge(snapshot)
        rounds.append(time.thread_time() - began)
    engine = play.engine
    later = play.wall
    takes, packs = [], []
    for _ in range(repeats):
        later += 1.0
        began = time.thread_time()
        engine.windows.take(snapshot.frames, later)
        between = time.thread_time()
        for _, group in engine.groups():
            assert not group.evaluate(engine.windows, later).failures
        takes.append(between - began)
        packs.append(time.thread_time() - between)
    result = {
        "pack": median(packs),
        "take": median(takes),
        "round": sum(rounds) / len(rounds),
        "bytes": engine.windows.bytes,
        "rules": sum(len(group.rules) for file in pack for group in file.groups),
        "groups": sum(len(file.groups) for file in pack),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
