"""The role's parts agree with each other and with the agent: `make test-ansible` plays it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from agent.config.reading import entries
from tests.deployment.role_files import ROLE, VARS, contents, restart_keys


def part(name: str) -> Any:
    return yaml.safe_load((ROLE / name).read_text())


def test_the_list_of_keys_is_current() -> None:
    assert VARS.read_text() == contents(), "run `make generate`"


def test_every_key_that_needs_a_restart_is_in_the_list() -> None:
    for entry in entries():
        if entry.field.key is not None and entry.field.key.restart:
            assert any(entry.path == each or entry.path.startswith(f"{each}.") for each in restart_keys()), entry.path
    assert "rack.power_budget" not in restart_keys()


def test_every_variable_is_described_and_has_its_default() -> None:
    options = part("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = part("defaults/main.yml")
    assert list(options) == list(defaults)
    told = {name: option["default"] for name, option in options.items() if "default" in option}
    assert told == {name: value for name, value in defaults.items() if name != "coldplate_peers"}


def test_tasks_use_no_variable_that_nobody_sets() -> None:
    texts = [path.read_text() for folder in ("tasks", "handlers", "templates") for path in (ROLE / folder).iterdir()]
    used = set(re.findall(r"\bcoldplate_\w+", " ".join([*texts, VARS.read_text()])))
    inside = set(re.findall(r"(?:register: |^ +)(coldplate_\w+)(?=:|$)", "\n".join(texts), re.MULTILINE))
    known = part("defaults/main.yml").keys() | part("vars/main.yml").keys() | inside | {"coldplate_given"}
    assert used - known == set()
    assert part("defaults/main.yml").keys() - used == {"coldplate_rack_group"}  # which another default uses


def test_a_handler_is_there_for_each_notification() -> None:
    notified = {
        each["notify"]
        for path in (ROLE / "tasks").iterdir()
        for each in yaml.safe_load(path.read_text())
        if "notify" in each
    }
    assert notified == {each["name"] for each in part("handlers/main.yml")}
