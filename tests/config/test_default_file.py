"""What is written about the keys comes from the keys."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from agent import cli
from agent.config.default_file import default_file
from agent.config.reading import KeyEntry, entries, parse
from agent.config.schema import Config
from agent.wiring.reconfiguration import keys_for_a_restart
from tests.each import for_each
from tests.lab.generate import configuration_table

ROOT = Path(__file__).resolve().parents[2]
KEYS = [each for each in entries() if each.field.key is not None]


def uncommented(text: str) -> str:
    """With every key in force: a key's line begins with # and no space behind it."""
    return re.sub(r"^( *)#(?! )|^( *)#(?=  )", r"\1\2", text, flags=re.MULTILINE)


def test_the_document_and_the_default_file_are_current() -> None:
    document = (ROOT / "docs" / "configuration.md").read_text()
    assert configuration_table.splice(document) == document, "make generate"
    assert default_file() == (ROOT / "packaging" / "coldplate.yaml").read_text(), "make generate"


def test_the_default_file_changes_nothing() -> None:
    assert parse(default_file(), "coldplate.yaml") == Config()


def test_every_key_of_the_default_file_can_be_put_in_force() -> None:
    text = uncommented(default_file()).replace("devices: auto", "devices: synthetic")
    text = re.sub(r"class: ul489", "class: electronic", text)
    found = parse(text, "coldplate.yaml")
    assert found.rack.breakers["NAME"].long_delay == 8.0
    assert found.backends.redfish is not None
    assert found.node.name == "node-1.example"
    written = {line.strip().partition(":")[0] for line in text.splitlines()}
    assert {each.field.name for each in entries()} <= written


@for_each("each", KEYS)
def test_a_key_says_what_it_is_for_and_its_default_is_one_that_it_allows(each: KeyEntry) -> None:
    key, default = each.field.key, each.field.default
    assert key is not None
    assert key.what.endswith((".", ","))
    if default not in (None, msgspec.NODEFAULT):
        assert key.problem(default) is None
    if each.field.kind in (int, float) and key.unit is not None:
        assert key.range or key.unit.name == "LIMIT"


def test_a_key_whose_change_needs_a_restart_is_reported_and_the_others_are_not() -> None:
    before = Config()
    after = parse(
        "node: {name: other, rack: r1}\nbackends: {host: false, expected_gpus: 4, estimate: {factor: 2}}\n"
        "web: {listen: [':1']}\nsampling: {fast: 2s}\nstate_dir: /elsewhere\njobs: {sources: []}\n",
        "c.yaml",
    )
    assert keys_for_a_restart(before, after) == [
        "node.name",
        "backends.host",
        "jobs.sources",
        "web.listen",
        "state_dir",
    ]


def test_a_document_without_a_place_for_the_keys_is_refused() -> None:
    with pytest.raises(
        ValueError, match="no place for keys; mark it with a line <!-- keys: made by `make generate` -->"
    ):
        configuration_table.splice("nothing")


def test_the_default_file_is_rendered(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["render", "config-file"]) == 0
    assert capsys.readouterr().out == default_file()
