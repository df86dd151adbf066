"""`make score`: plays every scenario faster than time passes, and writes docs/dev/detection.md.

Exit status: 1 when an alert did not fire where it must, fired later than its limit or where it must not, or a rule
failed. The whole takes about 20 minutes on two processors.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from alerts.rulefile import AlertingRule, RuleFile
from tests.lab.bench.report import Progress, guarded
from tests.lab.score import document, measured_light, measured_power, measured_steps
from tests.lab.score.crew import PROCESSES, play_all, work_all
from tests.lab.score.document import PAGE
from tests.lab.score.expectations import EXPECTED
from tests.lab.score.play import load_pack
from tests.lab.score.plays import PLAYS, Part, ScoreError, digest, parts, refuse_gaps
from tests.lab.score.scoring import Verdict, problems, problems_of_work


def alerts_of(pack: Iterable[RuleFile]) -> list[str]:
    rules = [rule for file in pack for group in file.groups for rule in group.rules]
    return list(dict.fromkeys(rule.name for rule in rules if isinstance(rule, AlertingRule)))


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 when all is well, 1 when something missed, 2 for a mistake on the command line."""
    parsed = _parser().parse_args(arguments)
    pack = load_pack()
    if parsed.data is not None:
        return _play_data(parsed.data, pack)
    alerts = alerts_of(pack)
    try:
        refuse_gaps(set(alerts))
    except ScoreError as error:
        print(f"score: {error}", file=sys.stderr)
        return 1
    if parsed.jobs:
        works = list(work_all())
        PAGE.write_text(document.with_jobs(PAGE.read_text(encoding="utf-8"), works), encoding="utf-8")
        return _told(problems_of_work(works))
    wanted = [part for part in parts(PLAYS) if not parsed.only or part.name in parsed.only]
    verdicts = _play_all(wanted)
    if parsed.only:
        print(document.tables(verdicts, alerts))
    else:
        page = document.render(PAGE.read_text(encoding="utf-8"), verdicts, alerts, digest(pack))
        PAGE.write_text(page, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(PAGE.parents[2])}: {len(verdicts)} plays, {len(alerts)} alerts")
    return _told(problems(verdicts))


def _told(problems: Iterable[str]) -> int:
    """Print what went wrong, and return the exit status."""
    wrong = list(problems)
    print("\n".join(wrong) or "every alert fired where and when it must, and no other did")
    return 1 if wrong else 0


def _play_data(folder: Path, pack: Sequence[RuleFile]) -> int:
    """Play what others measured, and write the tables of the page about it below what is written there by hand."""
    asked = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    for measured in (measured_light, measured_steps, measured_power):
        rules = next(each for each in pack if Path(each.path).stem == measured.RULES)
        if tables := measured.report(folder, rules, Progress().say):
            break
    else:
        print(f"score: {folder} is none of the data sets that docs/dev/testing.md names", file=sys.stderr)
        return 2
    page = PAGE.with_name(f"measured-{measured.ABOUT}.md")
    words = page.read_text(encoding="utf-8").partition("\n| ")[0]
    words = re.sub(r"commit\n`\w+`", f"commit\n`{asked.stdout.strip() or 'unknown'}`", words)
    page.write_text(f"{words}\n{tables}", encoding="utf-8")
    print(tables)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.score", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="SCENARIO",
        action="append",
        choices=list(EXPECTED),
        help="play this scenario alone and print its tables; may be given several times: " + "; ".join(EXPECTED),
    )
    help_of_jobs = "play the kinds of work of jobs alone, and replace the page's section about them (15 minutes)"
    parser.add_argument("--jobs", action="store_true", help=help_of_jobs)
    help_of_data = "play what others measured instead: a clone of a data set that docs/dev/testing.md names"
    parser.add_argument("--data", metavar="DIR", type=Path, help=help_of_data)
    return parser


def _play_all(wanted: Sequence[Part]) -> list[Verdict]:
    progress = Progress()
    total = sum(part.seconds for part in wanted)
    progress.say(f"{len(wanted)} plays, {total / 3600:.1f} node-hours, {PROCESSES} at a time")
    verdicts: dict[Part, Verdict] = {}
    for part, verdict in play_all(wanted):
        verdicts[part] = verdict
        share = sum(each.seconds for each in verdicts) / total
        progress.say(f"{share:4.0%}  {part.name}, play {part.number}: {_summary(verdict)}")
    return [verdicts[part] for part in wanted]


def _summary(verdict: Verdict) -> str:
    fired = sum(hit.after is not None for hit in verdict.hits)
    wrong = f", {len(verdict.false_alarms)} FALSE" if verdict.false_alarms else ""
    return f"{fired} of {len(verdict.hits)} alerts{wrong}"


if __name__ == "__main__":
    sys.exit(guarded(main))
