"""Finds the rule files that a configuration names: the shipped pack, its optional file, files, and patterns of files.

A name that matches no file is an error, never a warning: alerts that were not loaded look like a healthy node.

The `runbook_url` of the pack's alerts leads to the agents, which serve the runbooks themselves, or to a site's own
address. A site gives that address to its agents and to `coldplate render rules`, so that node and server agree.
"""

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from agent.lib.wording import one_line, shown
from alerts import rulefile
from alerts.rulefile import AlertingRule, Rule, RuleCount, RuleFile, RuleFileError, RuleGroup, TooManyRulesError
from alerts.template import compile_template
from alerts.yamlnodes import MOST_PROBLEMS, Problem

BUILTIN = "builtin"
ADVICE = "advice"
"""The shipped file that `builtin` does not hold: what it reports needs no action on the node."""
MOST_FILES = 1000
MOST_SHOWN = 400

_SHIPPED = Path(__file__).resolve().parent / "rules"
_RUNBOOKS = _SHIPPED.parent / "runbooks" / "html"
_SERVER = _SHIPPED.parent / "server"
FLEET_RULES = _SERVER / "fleet.rules.yml"
"""Recorded series that the boards read, of a server alone: they sum up over nodes."""
ALERTMANAGER = _SERVER / "alertmanager.yml"
MESSAGES = _SERVER / "coldplate.tmpl"
"""The shipped configuration of an Alertmanager, and its templates of messages."""


class EntryError(ValueError):
    """An entry names no file that can be read; the text begins with it and has the remedy."""

    def __init__(self, entry: str, problem: str) -> None:
        self.entry = entry
        super().__init__(f"{shown(entry, MOST_SHOWN)} {problem}")


def shipped_files() -> list[Path]:
    """Return all shipped rule files, those that are off by default included."""
    return sorted(_SHIPPED.glob("*.yml"))


def is_shipped(path: Path) -> bool:
    """Return True if a path is that of a shipped rule file."""
    return path.resolve().parent == _SHIPPED


def is_about_agent(path: str | Path) -> bool:
    """Return whether a path is that of the shipped rule file about the agent itself, and what it cannot read."""
    return is_shipped(Path(path)) and Path(path).stem == "agent"


def is_about_racks(path: str | Path) -> bool:
    """Return whether a path is that of a shipped rule file whose rules read only series that agents of a rack have."""
    return is_shipped(Path(path)) and Path(path).stem.partition("-")[0] in {"rack", "breakers"}


def builtin_files() -> list[Path]:
    """Return the rule files of the pack that is on by default."""
    return [path for path in shipped_files() if path.stem != ADVICE]


def runbooks() -> dict[str, str]:
    """Return the HTML of the shipped runbooks, by the name of the alert."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(_RUNBOOKS.glob("*.html"))}


def find(entry: str, base: Path | None) -> list[Path]:
    """Return the files that an entry names: `builtin`, `advice`, a file, or a pattern; relative to `base` if given.

    Raises EntryError if the entry names no file.
    """
    if entry == BUILTIN:
        return builtin_files()
    if entry == ADVICE:
        return [_SHIPPED / f"{ADVICE}.yml"]
    path = Path(entry) if base is None else base / entry
    if os.path.isdir(path):  # noqa: PTH112 unlike Path's, these never raise, whatever the name holds
        raise EntryError(entry, f"is a directory; name its files, such as {shown(f'{entry}/*.yml', MOST_SHOWN)}")
    if os.path.lexists(path):
        return [path]  # even a FIFO or a device: reading it will report what is wrong
    pattern = entry if base is None or Path(entry).is_absolute() else f"{glob.escape(str(base))}/{entry}"
    names = sorted(islice(glob.iglob(pattern), MOST_FILES + 1))  # noqa: PTH207 an absolute pattern Path.glob refuses
    paths = [Path(name) for name in names if os.path.isfile(name)]  # noqa: PTH113
    if not paths:
        refusal = _refusal(path)
        if refusal:
            raise EntryError(entry, f"cannot be read: {refusal}; let the agent's user read it")
        remedy = f"name a rule file, a pattern such as 'rules/*.yml', {BUILTIN!r} or {ADVICE!r}"
        raise EntryError(entry, f"matches no file ({one_line(str(path))}); {remedy}")
    if len(paths) > MOST_FILES:
        raise EntryError(entry, f"matches more than {MOST_FILES} files; use a narrower pattern")
    return paths


def _refusal(path: Path) -> str:
    """Return why this user cannot see what a path names, if a folder on the way is closed; else empty."""
    fixed = path
    while glob.has_magic(str(fixed)):
        fixed = fixed.parent
    try:
        if fixed != path and stat.S_ISDIR(os.stat(fixed).st_mode):  # noqa: PTH116 - a pattern is matched by listing
            os.scandir(fixed).close()
        else:
            os.lstat(fixed)
    except PermissionError as error:
        return f"{one_line(str(fixed))}: {error.strerror}"
    except (OSError, ValueError):
        pass
    return ""


def load_all(entries: Iterable[str], base: Path | None, default_step: float) -> tuple[RuleFile, ...]:
    """Return the rules of all files that the entries name, each file once, in the order of the entries.

    Raises EntryError for an entry that names no file, ValueError for too many files, RuleFileError with all that is
    wrong with all files, and TooManyRulesError if the rules beside the shipped ones are too many.
    """
    paths: dict[str, Path] = {}
    for entry in entries:
        for path in find(entry, base):
            paths.setdefault(os.path.realpath(path), path)
    if len(paths) > MOST_FILES:
        raise ValueError(f"{len(paths)} files; the limit is {MOST_FILES}, merge some of them")
    loaded: list[RuleFile] = []
    problems: list[Problem] = []
    count = RuleCount()
    for path in paths.values():
        counted = None if is_shipped(path) else count
        try:
            loaded.append(rulefile.load(path, default_step=default_step, count=counted))
        except TooManyRulesError:
            raise
        except RuleFileError as error:
            problems.extend(error.problems)
        if len(problems) >= MOST_PROBLEMS:
            break
    if problems:
        raise RuleFileError(problems)
    return tuple(loaded)


ANNOTATION = "runbook_url"
_OF_AN_AGENT = re.compile(r"(?:.*\}\})?/runbooks/(\w+)(?:\{\{ end \}\})?", re.DOTALL)
"""An address whose host comes from a template, or is missing. A complete one is the author's own, and stays."""


def lead_to(base: str, files: Sequence[RuleFile]) -> tuple[RuleFile, ...]:
    """Return the files with links that lead below `base`, a URL without a slash at its end: BASE/GpuLost."""

    return _with_links(files, lambda address: f"{base}/{address[1]}")


def over_tls(files: Sequence[RuleFile]) -> tuple[RuleFile, ...]:
    """Return the files with links to agents that serve HTTPS alone."""
    return _with_links(files, lambda address: address[0].replace("http://", "https://"))


def _with_links(files: Sequence[RuleFile], link: Callable[[re.Match[str]], str]) -> tuple[RuleFile, ...]:
    """Return the files with another link in place of each that leads to an agent."""

    def linked(group: RuleGroup) -> RuleGroup:
        return replace(group, rules=tuple(_with_link(rule, link) for rule in group.rules))

    return tuple(file.with_groups(linked) for file in files)


def _with_link(rule: Rule, link: Callable[[re.Match[str]], str]) -> Rule:
    if not isinstance(rule, AlertingRule):
        return rule
    annotations = dict(rule.annotations)
    address = _OF_AN_AGENT.fullmatch(annotations[ANNOTATION].source) if ANNOTATION in annotations else None
    if address is None:
        return rule
    annotations[ANNOTATION] = compile_template(link(address))
    return replace(rule, annotations=tuple(annotations.items()))
