"""Where an alert's runbook is: the same for an agent and for the rule files that it renders for a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import cli
from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.wiring.alerting import load_files
from alerts.rulefile import AlertingRule, RuleFile, load

BASE = "https://docs.example/gpu/runbooks"


def links(files: tuple[RuleFile, ...]) -> dict[str, str]:
    rules = (rule for file in files for group in file.groups for rule in group.rules)
    return {rule.name: dict(rule.annotations)["runbook_url"].source for rule in rules if isinstance(rule, AlertingRule)}


def configured(text: str, folder: Path = Path()) -> dict[str, str]:
    return links(load_files(parse(text, "c.yaml"), folder))


def test_without_an_address_the_agents_show_their_runbooks() -> None:
    found = configured("rules: {}")
    assert found["GpuLost"] == "http://{{ $labels.instance }}/runbooks/GpuLost"
    assert found["RackPowerHigh"].endswith('http://{{ . | first | label "instance" }}{{ end }}/runbooks/RackPowerHigh')


@pytest.mark.parametrize("base", [BASE, f"{BASE}/"])
def test_with_an_address_every_alert_of_the_pack_leads_there(base: str) -> None:
    found = configured(f"rules: {{runbook_base: '{base}'}}")
    assert len(found) > 50
    assert found == {name: f"{BASE}/{name}" for name in found}


def test_what_a_server_loads_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["render", "rules", "--output", str(tmp_path), "--runbook-base", BASE]) == 0
    rendered = links(tuple(load(path) for path in tmp_path.glob("*.yml")))
    assert rendered == configured(f"rules: {{runbook_base: '{BASE}'}}")


def test_links_of_others_stay(tmp_path: Path) -> None:
    urls = {"Own": "https://wiki.example/runbooks/Own", "Bare": "/runbooks/Bare", "Text": "see the wiki", "None": ""}
    rules = "".join(
        f"  - {{alert: {name}, expr: up, annotations: {{runbook_url: '{url}'}}}}\n" for name, url in urls.items()
    )
    (tmp_path / "own.yml").write_text(f"groups:\n- name: own\n  rules:\n{rules}")
    found = configured(f"rules: {{files: [own.yml], runbook_base: '{BASE}'}}", tmp_path)
    assert found == {**urls, "Bare": f"{BASE}/Bare"}


def test_an_override_is_the_last_word() -> None:
    own = "override: {GpuHot: {annotations: {runbook_url: 'https://wiki.example/hot'}}}"
    assert configured(f"rules: {{runbook_base: '{BASE}', {own}}}")["GpuHot"] == "https://wiki.example/hot"


@pytest.mark.parametrize(
    "wrong", ["docs.example", "ftp://docs.example", "https://a b", "https://a/{{ 1 }}", "https://a?b", ""]
)
def test_an_address_that_is_none_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"rules\.runbook_base"):
        parse(f"rules: {{runbook_base: '{wrong}'}}", "c.yaml")
    assert cli.main(["render", "rules", "--output", "/nowhere/x", "--runbook-base", wrong]) == 2
    assert "--runbook-base" in capsys.readouterr().err
