"""What else changed around the moment at which an alert began, as one text: the annotation `changes`.

Nearest first: what happened to the same GPU or port, then to its job, then to the node, then to the other parts of it.
The text says over which time nothing else is known, so that an empty one is an answer too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from datetime import datetime, timezone
from typing import NamedTuple

from agent.lib.wording import index_runs
from agent.model import Alert, Backend, Entity, Gpu, IbPort, NvLink, Rack
from alerts.changes.change_journal import Change, ChangeJournal

BEFORE_SECONDS = 120.0
"""Seconds before an alert began that are looked at: rules judge means over a minute and more."""
TOGETHER_SECONDS = 5.0
"""Seconds within which the same change of several parts is one."""
MOST_TOLD = 5
_KINDS: dict[type, str] = {IbPort: "port", Backend: "backend", Rack: "rack"}


class _Story(NamedTuple):
    """One change of one part or of several: how near it is to the alert, when, of what, and in which words."""

    nearness: int
    at: float
    entities: tuple[Entity, ...]
    text: str


def explain(journal: ChangeJournal, alert: Alert, now: float) -> str:
    """Return what changed on the node from two minutes before the alert began until `now`, in wall seconds."""
    start = alert.active_at - BEFORE_SECONDS
    known = journal.known_since(now)
    if known > start:
        why = "the agent's start" if known == journal.began else "as far back as it remembers"
        span = f"from {_clock(known)}, {why}, to {_clock(now)}"
    else:
        span = f"from {_clock(start)} to {_clock(now)}"
    found = _joined(journal.between(start, now), dict(alert.labels))
    stories = sorted(found, key=lambda story: (story.nearness, story.at))
    shown = sorted(stories[:MOST_TOLD], key=lambda story: (story.at, story.nearness))
    if not shown:
        return f"nothing else that the agent watches changed on this node {span}"
    parts = [f"{_clock(story.at)} {_who(story.entities)}{story.text}" for story in shown]
    left = len(stories) - len(shown)
    return "; ".join(parts) + (f"; and {left} more" if left else "") + f" ({span})"


def _joined(changes: Iterable[Change], labels: dict[str, str]) -> Iterable[_Story]:
    """Yield the changes by their nearness; the same change of several parts at one time is one story."""
    open_ones: dict[tuple[int, type, str], _Story] = {}
    done = []
    for change in sorted(changes, key=lambda each: each.at):
        key = (_nearness(change, labels), type(change.entity), change.text)
        story = open_ones.get(key)
        if story is not None and change.at - story.at <= TOGETHER_SECONDS:
            open_ones[key] = story._replace(entities=(*story.entities, change.entity))
            continue
        if story is not None:
            done.append(story)
        open_ones[key] = _Story(key[0], change.at, (change.entity,), change.text)
    return [*done, *open_ones.values()]


def _nearness(change: Change, labels: dict[str, str]) -> int:
    """Return 0 for the alert's own part, 1 for its job, 2 for the node, 3 for other parts of the node."""
    own = dict(_part(change.entity).labels)
    if own and all(labels.get(name) == value for name, value in own.items()):
        return 0
    if change.job and labels.get("job_id") == change.job:
        return 1
    return 2 if not own else 3


def _part(entity: Entity) -> Entity:
    """Return the part that alerts are about: of a link its GPU."""
    return entity.gpu if isinstance(entity, NvLink) else entity


def _who(entities: Sequence[Entity]) -> str:
    """Return the names of the parts, with a colon before the text of the change; empty for the node itself."""
    if isinstance(entities[0], (Gpu, NvLink)):
        gpus = {_part(each).labels[0][1] for each in entities}
        links = f"{_plural('NVLink', entities)} of " if isinstance(entities[0], NvLink) else ""
        return f"{links}{_plural('GPU', gpus)} {index_runs(gpus)}: "
    names = sorted({"/".join(value for _, value in each.labels) for each in entities})
    kind = _KINDS.get(type(entities[0]))
    return f"{_plural(kind, names)} {', '.join(names)}: " if kind else ""


def _plural(kind: str, members: Sized) -> str:
    return kind if len(members) == 1 else f"{kind}s"


def _clock(wall: float) -> str:
    return datetime.fromtimestamp(wall, timezone.utc).strftime("%H:%M:%SZ")
