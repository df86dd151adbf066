"""The configuration file, and the files of passwords, tokens and certificates that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent.commands.doctor.agent_user import READ, AgentUser
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.config.reading import fields_of
from agent.config.schema import Section
from agent.lib.wording import UserError
from agent.wiring.start_checks import check

RANK = 10
CONFIG = Diagnoses("configuration")


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """The file itself, and each that it names."""
    yield CONFIG.check(node.file or "configuration", _look, node)
    for key, path in sorted(set(named_files(node.config))):
        yield CONFIG.check(path, _readable, node.user, key, Path(path))


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    if node.problem:
        yield CONFIG.fail(node.problem, "correct that line; every key is in docs/configuration.md")
        return
    try:
        check(node.config)
    except UserError as error:
        yield CONFIG.fail(str(error), "correct that key; every key is in docs/configuration.md")
        return
    if node.file is None:
        yield CONFIG.ok("no file: every key has its default")
    elif not node.user.may(READ, node.file.stat()):
        yield CONFIG.fail(f"{node.user.name} may not read {node.file}", f"chmod a+r {node.file}")
    else:
        yield CONFIG.ok(str(node.file))


def named_files(section: Section, path: str = "") -> Iterator[tuple[str, str]]:
    """Key and value of every file that a login is in or is trusted by."""
    for field in fields_of(type(section)).values():
        value: Any = getattr(section, field.attribute)
        name = f"{path}.{field.name}".lstrip(".")
        if isinstance(value, Section):
            yield from named_files(value, name)
        elif field.name.endswith("_file") and isinstance(value, str):
            yield name, value


def _readable(user: AgentUser, key: str, path: Path) -> Iterator[Diagnosis]:
    if not path.is_file():
        yield CONFIG.fail(f"{key}: {path} is no file", f"write it, readable for {user.name} alone")
    elif not user.may(READ, path.stat()):
        yield CONFIG.fail(f"{key}: {user.name} may not read {path}", f"chown coldplate {path}; chmod 0400 {path}")
    else:
        yield CONFIG.ok(f"{key}: {path} may be read")
