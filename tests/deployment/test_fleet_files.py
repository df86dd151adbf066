"""packaging/fleet: loaded by the programs that run a fleet, and in agreement with the pack that nodes evaluate."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from alerts import rulefile
from alerts.rulefile import AlertingRule, Rule
from tests.deployment.fleet_files import FLEET, ROOT, contents
from tests.lab.parity.oracles import BROUGHT
from tests.servers import need, need_recent

CONFIGS = sorted((FLEET / "prometheus").glob("*.yml"))
RULES = sorted((FLEET / "rules").glob("*.yml"))
CASES = sorted((FLEET / "tests").glob("*.yml"))
RELAYED = Path(__file__).with_name("relay.test.yml")
LEFT_OUT = "NOTHING shows here that a fleet's servers can load packaging/fleet"


def judged(*command: str | Path) -> str:
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def engine(name: str) -> Path:
    """A program of VictoriaMetrics, where `make fleet` has brought it."""
    place = BROUGHT / "usr" / "bin" / name
    return place if place.exists() else Path(need(name, left_out=LEFT_OUT))


def rules(path: Path) -> list[Rule]:
    return [rule for group in rulefile.load(path).groups for rule in group.rules]


def sources(rule: AlertingRule) -> dict[str, str]:
    return {name: template.source for name, template in (*rule.labels, *rule.annotations)}


def test_made_files_are_current_and_no_node_has_a_fleets_rules() -> None:
    """They read `up` of many nodes: on one they would be inert."""
    for path, text in contents().items():
        assert path.read_text() == text, f"{path}: run make generate"
    names = {path.name for path in RULES}
    for place in (ROOT / "alerts" / "rules", ROOT / "packaging" / "helm", ROOT / "packaging" / "ansible"):
        assert not names & {path.name for path in place.rglob("*.yml")}


@pytest.mark.release
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_prometheus_loads_each_configuration(path: Path) -> None:
    assert "SUCCESS" in judged(need_recent(LEFT_OUT).promtool, "check", "config", "--syntax-only", path)


@pytest.mark.release
def test_prometheus_and_vmalert_load_the_rules() -> None:
    packaged = [*RULES, *sorted((ROOT / "alerts" / "server").glob("*.rules.yml"))]
    judged(need_recent(LEFT_OUT).promtool, "check", "rules", *packaged)
    rule_flags = [f"-rule={path}" for path in [*packaged, *sorted((ROOT / "alerts" / "rules").glob("*.yml"))]]
    judged(engine("vmalert"), "-dryRun", "-disableAlertgroupLabel", *rule_flags)


@pytest.mark.release
@pytest.mark.parametrize("path", [*CASES, RELAYED], ids=lambda path: path.name.partition(".")[0])
def test_the_rules_do_what_their_cases_say(path: Path) -> None:
    judged(need_recent(LEFT_OUT).promtool, "test", "rules", path)


def test_every_fleet_alert_has_a_case_that_fires_and_one_that_is_silent() -> None:
    written = [path for path in RULES if not path.name.startswith("relay")]
    names = {rule.name for path in written for rule in rules(path) if isinstance(rule, AlertingRule)}
    cases = "".join(path.read_text() for path in CASES)
    assert set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", cases)) >= names
    assert set(re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- exp_labels", cases)) == names


@pytest.mark.release
def test_vmagent_loads_its_configurations() -> None:
    for name in ("scrape", "shards"):
        judged(
            engine("vmagent"),
            "-dryRun",
            f"-promscrape.config={FLEET / 'vmagent' / name}.yml",
            "-remoteWrite.url=http://localhost",
            f"-remoteWrite.urlRelabelConfig={FLEET / 'vmagent' / 'keep.yml'}",
        )


def test_what_two_files_have_under_one_name_is_the_same_rule() -> None:
    """A shard has the pack's AgentDown, and the fleet as a whole the sums that a single server makes for itself."""
    known = {rule.name: rule for rule in rules(ROOT / "alerts" / "server" / "fleet.rules.yml")}
    known |= {rule.name: rule for rule in rules(ROOT / "alerts" / "rules" / "agent.yml")}
    both = [rule for name in ("shard", "clusters") for rule in rules(FLEET / "rules" / f"{name}.rules.yml")]
    shared = [rule for rule in both if rule.name in known]
    assert {rule.name for rule in shared} >= {"AgentDown", "cluster:nodes:count", "cluster:gpu_utilization_ratio:avg"}
    assert {rule.name for rule in both if rule.name.startswith("cluster:")} == {
        name for name in known if name.startswith("cluster:")
    }
    for rule in shared:
        twin = known[rule.name]
        assert rule.expression == twin.expression, rule.name
        if isinstance(rule, AlertingRule):
            assert isinstance(twin, AlertingRule)
            assert rule.terms == twin.terms
            assert sources(rule) == sources(twin)


@pytest.mark.parametrize("name", ["shard", "shard-kubernetes"])
def test_every_shard_has_its_number_where_it_is_marked(name: str) -> None:
    text = (FLEET / "prometheus" / f"{name}.yml").read_text()
    marked = re.findall(r'"0"\}?\s+# SHARD', text)
    assert len(marked) == 2
    config = yaml.safe_load(text)
    dropped = config["alerting"]["alert_relabel_configs"][0]["regex"].split("|")
    assert set(config["global"]["external_labels"]) - {"cluster"} <= set(dropped), (
        "an alert is the same from any server"
    )
