"""Files with mistakes of every kind: they are used or refused, in words that name the file, and nothing else happens.

The seeds are fixed; `FUZZ=20 make test ARGS='tests/lib'` tries twenty times as many mutations.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.backends.protocol import DeviceError, SourceError
from agent.backends.synthetic import ScenarioError, SyntheticSource, load_scenario
from agent.config import reading as config
from agent.config.schema import Config, ConfigError
from agent.lib.clock import clock
from agent.lib.credentials import certificates, secret
from agent.model import Instant, Lane
from agent.rack.targets import read_file
from agent.wiring.alerting import Receivers, load_alerting
from agent.wiring.peering import load_rack
from agent.wiring.sources import load_settings
from agent.wiring.start_checks import check
from alerts import rulefile, rulewriter
from alerts.rulefile import RuleFileError
from alerts.unittests import runner, unit_test_file
from alerts.unittests.unit_test_file import TestFileError
from tests.lib.mutations import mutations

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
TIMES = int(os.environ.get("FUZZ", "1"))
SEEDS = pytest.mark.parametrize("seed", range(3))
Use = Callable[[Path], "str | None"]
"""Uses a file; what is wrong with it, None if nothing is."""


def fuzz(seed: int, sources: list[Path], path: Path, use: Use, count: int) -> None:
    """Try mutations of files at a path. Both outcomes must come about, or nothing was tried."""
    outcomes = set()
    for _, content in mutations(seed, [source.read_bytes() for source in sources], count * TIMES):
        path.write_bytes(content)
        try:
            problem = use(path)
        except Exception as error:
            kept = Path(shutil.copy(path, f"{path}.failed"))
            raise AssertionError(f"seed {seed}: {type(error).__name__} for {kept}") from error
        outcomes.add(problem is None)
        if problem is not None:
            assert problem.strip(), content
            assert all(line.isprintable() for line in problem.split("\n")), problem
            assert all(len(line) < 2500 for line in problem.split("\n")), problem
    assert outcomes == {True, False}


def use_config(path: Path) -> str | None:
    try:
        used = config.load(path)
    except ConfigError as error:
        assert str(path) in str(error)
        return str(error)
    try:
        check(used)
        load_alerting(used, path.parent, Receivers(clock))
        load_rack(used, path.parent, 1.0)
        load_settings(used)
    except ConfigError as error:
        return str(error)
    return None


def use_rules(path: Path) -> str | None:
    try:
        rules = rulefile.load(path)
    except RuleFileError as error:
        assert str(path) in str(error)
        return str(error)
    rulefile.parse(rulewriter.write(rules), "written")
    return None


def use_tests(path: Path) -> str | None:
    try:
        tests = unit_test_file.load(path)
        rules = [rulefile.load(each) for each in tests.rule_files]
    except (TestFileError, RuleFileError) as error:
        assert str(path.parent) in str(error)
        return str(error)
    if sum(test.end / tests.interval for test in tests.tests) < 500:
        return "\n".join(line for failed in runner.run(tests, rules) for line in str(failed).split("\n")) or None
    return None


def use_scenario(path: Path) -> str | None:
    try:
        scenario = load_scenario(str(path))
    except ScenarioError as error:
        assert str(path) in str(error)
        return str(error)
    source = SyntheticSource(scenario, 0.0)
    source.close()  # a read that hangs comes back at once
    try:
        channels = source.open(Instant(0.0, 1.7e9))
        for t in (0.5, 61.0, 1e5):
            for channel in channels:
                for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
                    channel.read(lane, Instant(t, 1.7e9 + t))
    except (DeviceError, SourceError):
        pass  # a fault of the scenario
    return None


def use_peers(path: Path) -> str | None:
    try:
        read_file(path)
    except ValueError as error:
        assert "secret@" not in str(error) or "too large a number" in str(error)
        return str(error)
    return None


def test_the_example_has_every_key() -> None:
    """Without this, a key that is added would never be tried."""
    import msgspec
    import yaml

    def keys(struct: type[msgspec.Struct], path: str = "") -> set[str]:
        found = set()
        for field in msgspec.structs.fields(struct):
            inner = f"{path}.{field.encode_name}"
            found.add(inner)
            for each in (field.type, *getattr(field.type, "__args__", ())):
                if isinstance(each, type) and issubclass(each, msgspec.Struct):
                    found |= keys(each, f"{inner}.*" if getattr(field.type, "__origin__", None) is dict else inner)
        return found

    def given(raw: object, path: str = "") -> set[str]:
        found = {path}
        for key, value in raw.items() if isinstance(raw, dict) else ():
            found |= given(value, f"{path}.*" if path in (".rules.override", ".rack.breakers") else f"{path}.{key}")
        return found

    example = HERE / "every-key.yaml"
    assert keys(Config) <= given(yaml.safe_load(example.read_text()))
    assert config.load(example).rules.override["Hot"].thresholds == {80.0: 85.0, 100.0: 90.5}


@SEEDS
def test_a_configuration(seed: int, tmp_path: Path) -> None:
    shutil.copy(HERE / "site.rules.yml", tmp_path)
    fuzz(seed, [HERE / "every-key.yaml"], tmp_path / "coldplate.yaml", use_config, 250)


@SEEDS
def test_a_rule_file(seed: int, tmp_path: Path) -> None:
    sources = [HERE / "site.rules.yml", HERE / "site.rules.yml", *sorted((ROOT / "alerts" / "rules").glob("*.yml"))]
    fuzz(seed, sources, tmp_path / "fuzzed.rules.yml", use_rules, 250)


@SEEDS
def test_a_unit_test_file(seed: int, tmp_path: Path) -> None:
    data = ROOT / "tests" / "alerts" / "data"
    for rules in data.glob("*.rules.yml"):
        shutil.copy(rules, tmp_path)
    fuzz(seed, sorted(data.glob("*.test.yml")), tmp_path / "fuzzed.test.yml", use_tests, 100)


@SEEDS
def test_a_scenario(seed: int, tmp_path: Path) -> None:
    scenarios = sorted((ROOT / "agent" / "backends" / "synthetic" / "scenarios").glob("*.yaml"))
    fuzz(seed, scenarios, tmp_path / "fuzzed.yaml", use_scenario, 250)


@SEEDS
def test_a_file_of_peers(seed: int, tmp_path: Path) -> None:
    peers = tmp_path / "peers.yml"
    peers.write_text("- targets: ['n1:19400', n2:19400]\n  labels: {a: b}\n- {targets: ['[fd00::1]:19400']}\n")
    groups = tmp_path / "peers.json"
    groups.write_text(json.dumps([{"targets": ["n1:19400", "[::1]:19400"], "labels": {"a": "b"}}]))
    fuzz(seed, [peers, groups], tmp_path / "fuzzed.yml", use_peers, 250)


@SEEDS
def test_a_password_and_certificates(seed: int, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("a pass phrase, 3 words\n")

    def use(path: Path) -> str | None:
        try:
            certificates(str(path))
            secret(str(path))
        except ValueError as error:
            assert str(path) in str(error)
            return str(error)
        return None

    fuzz(seed, [password], tmp_path / "fuzzed", use, 250)
