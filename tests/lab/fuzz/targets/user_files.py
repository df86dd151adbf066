"""Files that users write: configuration, rules and their tests, scenarios, expectations, peers, credentials."""

import shutil
from pathlib import Path

from agent.backends.protocol import DeviceError, SourceError
from agent.backends.synthetic import ScenarioError, SyntheticSource, load_scenario
from agent.commands.compat_check.query_extraction import NoQueriesError, read_queries
from agent.commands.compat_check.query_verdicts import evaluate_query
from agent.config import reading as config
from agent.config.schema import ConfigError
from agent.health.expectations import ExpectationError, load_expectations
from agent.lib.clock import clock
from agent.lib.http_target import certificates, secret
from agent.model import Instant, Lane
from agent.rack.finder import read_file
from agent.wiring.alerting import Receivers, load_alerting
from agent.wiring.peering import load_rack
from agent.wiring.sources import load_settings
from agent.wiring.start_checks import check
from alerts import rulefile, server_files
from alerts.rulefile import RuleFileError
from exporters.protection.web_file import WebFileError, read_web_file
from tests.lab.fuzz.target import ROOT, Target

SITE_RULES = ROOT / "tests" / "lib" / "site.rules.yml"


def written(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def use_config(data: bytes, folder: Path) -> None:
    shutil.copy(SITE_RULES, folder)
    path = written(data, folder, "coldplate.yaml")
    try:
        used = config.load(path)
    except ConfigError as error:
        assert str(path) in str(error)
        raise
    check(used)
    if b"site.rules.yml" in data:  # the shipped rules take a second to load, and are not what is tried here
        load_alerting(used, folder, Receivers(clock))
    load_rack(used, folder)
    load_settings(used)


def use_rules(data: bytes, folder: Path) -> None:
    rules = rulefile.load(written(data, folder, "fuzzed.rules.yml"))
    rulefile.parse(server_files.write(rules), "written")


def use_scenario(data: bytes, folder: Path) -> None:
    scenario = load_scenario(str(written(data, folder, "fuzzed.yaml")))
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


def use_peers(data: bytes, folder: Path) -> None:
    try:
        read_file(written(data, folder, "peers.yml"))
    except ValueError as error:
        assert "secret@" not in str(error) or "too large a number" in str(error)
        raise


def use_credentials(data: bytes, folder: Path) -> None:
    path = str(written(data, folder, "password"))
    for read in (certificates, secret):
        try:
            read(path)
        except ValueError as error:
            assert path in str(error)


def use_dashboard(data: bytes, folder: Path) -> None:
    for query in read_queries(written(data, folder, "board.json")):
        evaluate_query(query)


TARGETS = (
    Target("config", ("agent/config/reading.py", "agent/config/quantities.py", "agent/lib/typed_yaml.py",
           "agent/lib/yamltree.py"), use_config, (), (ConfigError,), files=("tests/lib/every-key.yaml",), seconds=4.0),
    Target("rule-files", ("alerts/rulefile.py", "alerts/yamlnodes.py"), use_rules, (), (RuleFileError,),
           files=("tests/lib/site.rules.yml",), named=True, seconds=6.0),
    Target("scenarios", ("agent/backends/synthetic/loader.py",), use_scenario, (), (ScenarioError,),
           files=("agent/backends/synthetic/scenarios/[a-g]*.yaml",), named=True, seconds=6.0),
    Target("peer-files", ("agent/rack/finder.py",), use_peers, (), (ValueError,)),
    Target("credentials", ("agent/lib/http_target.py",), use_credentials),
    Target("dashboards", ("agent/commands/compat_check/query_extraction.py",), use_dashboard, (), (NoQueriesError,),
           named=True, seconds=4.0),
    Target("web-files", ("exporters/protection/web_file.py",),
           lambda data, folder: read_web_file(written(data, folder, "web.yml")), (), (WebFileError,), named=True),
    Target("expectations", ("agent/health/expectations.py",),
           lambda data, folder: load_expectations(str(written(data, folder, "node.yaml"))), (), (ExpectationError,),
           files=("agent/health/expectations/*.yaml",), named=True),
)  # fmt: skip
