"""The end of docs/metrics.md: the names of each exporter that are served, with coldplate's beside them."""

from collections.abc import Iterator
from pathlib import Path

from agent.model import Kind
from exporters.compatibility import PROFILES
from exporters.compatibility.foreign_names import ForeignName, ForeignProfile, our_words
from tests.lab.bench.report import markdown

PROSE = Path(__file__).with_name("migration")


def render() -> str:
    return "\n".join([_prose("introduction"), *(part for profile in PROFILES.values() for part in _section(profile))])


def _prose(name: str) -> str:
    return (PROSE / f"{name}.md").read_text(encoding="utf-8")


def _section(profile: ForeignProfile) -> Iterator[str]:
    yield f"## From {profile.title}: `{profile.word}`\n"
    yield _prose(profile.word)
    once: dict[str, ForeignName] = {}
    for each in profile.names:
        once.setdefault(each.name, each)  # those of MIG instances are the GPU's
    yield markdown(("Name", "Type", "On coldplate", "Remark"), map(_row, once.values()))
    if profile.not_served:
        rows = ((f"`{each.name}`", _cell(each.reason), _code(each.instead)) for each in profile.not_served)
        yield "Not served:\n"
        yield markdown(("Name", "Why", "Instead"), rows)


def _row(name: ForeignName) -> tuple[str, ...]:
    kind = "counter" if name.kind is Kind.COUNTER else "gauge"
    return f"`{name.name}`", kind, _code(our_words(name)), _cell(name.note)


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
