"""`render alertmanager`: merged into a site's own configuration, the parts move none of the site's alerts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent import cli
from tests.servers import need

LEFT_OUT = "NOTHING shows here that an Alertmanager can load what is rendered"
SITE: dict[str, Any] = {
    "route": {"receiver": "site", "routes": [{"matchers": ["team=storage"], "receiver": "storage"}]},
    "receivers": [{"name": "site"}, {"name": "storage"}, {"name": "pager"}],
    "inhibit_rules": [],
}
"""What an operator has; one receiver is named as one of the shipped configuration."""
OURS = {
    "GpuLost severity=critical instance=n1": "coldplate-pager",
    "GpuHot severity=warning instance=n1": "coldplate-tickets",
    "RackPowerHigh severity=critical rack=r1": "coldplate-facility-pager",
    "JobHung severity=critical scheduler=slurm job_id=7": "coldplate-job-owners",
    "AgentStalled severity=warning instance=n1": "coldplate-monitoring",
    "GpuXidInfo severity=info instance=n1": "coldplate-archive",
}
THEIRS = {
    "DiskFull severity=critical instance=n1 rack=r1": "site",
    "Gpu severity=critical": "site",
    "RackDoorOpen severity=critical rack=r1": "site",
    "NodeDown team=storage severity=warning": "storage",
}


@pytest.fixture
def rendered(tmp_path: Path) -> Path:
    out = tmp_path / "rendered"
    assert cli.main(["render", "alertmanager", "--output", str(out)]) == 0
    return out


def merged(rendered: Path) -> dict[str, Any]:
    """The site's configuration with each part where its first line says."""

    def part(name: str) -> list[dict[str, Any]]:
        return list(yaml.safe_load((rendered / name).read_text()))

    routes = [*SITE["route"]["routes"], *part("coldplate-routes.yml")]
    return {
        "templates": [str(rendered / "coldplate.tmpl")],
        "route": {"receiver": "site", "routes": routes},
        "receivers": [*SITE["receivers"], *part("coldplate-receivers.yml")],
        "inhibit_rules": part("coldplate-inhibit-rules.yml"),
    }


def amtool(*words: str | Path) -> str:
    done = subprocess.run(
        [need("amtool", left_out=LEFT_OUT), *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_alertmanager_loads_the_whole_and_the_merged_parts(rendered: Path, tmp_path: Path) -> None:
    (tmp_path / "merged.yml").write_text(yaml.safe_dump(merged(rendered)))
    for path in (rendered / "alertmanager.yml", tmp_path / "merged.yml"):
        assert "SUCCESS" in amtool("check-config", path)


def test_merged_parts_route_our_alerts_and_leave_a_sites_own(rendered: Path, tmp_path: Path) -> None:
    path = tmp_path / "merged.yml"
    path.write_text(yaml.safe_dump(merged(rendered)))
    for alert, receiver in {**OURS, **THEIRS}.items():
        name, *labels = alert.split()
        shown = amtool("config", "routes", "test", f"--config.file={path}", f"alertname={name}", *labels)
        assert shown.strip() == receiver, alert


def test_merged_inhibition_names_the_alerts_that_it_mutes(rendered: Path) -> None:
    """A rule without a name would also mute what a site's own rules say about a node or a rack of ours."""
    rules = yaml.safe_load((rendered / "coldplate-inhibit-rules.yml").read_text())
    assert len(rules) == len(yaml.safe_load((rendered / "alertmanager.yml").read_text())["inhibit_rules"])
    for rule in rules:
        assert any(matcher.startswith(("alertname=~", 'alertname="')) for matcher in rule["target_matchers"]), rule


def test_an_operators_file_and_an_edited_one_are_never_overwritten(
    rendered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["render", "alertmanager", "--output", str(rendered)]) == 0, "the same again is no loss"
    before = {path.name: path.read_bytes() for path in rendered.iterdir()}
    own = tmp_path / "etc"
    own.mkdir()
    (own / "alertmanager.yml").write_text("route: {receiver: mine}\n")
    (rendered / "coldplate-receivers.yml").write_text("- name: coldplate-pager\n")
    for out in (own, rendered):
        capsys.readouterr()
        assert cli.main(["render", "alertmanager", "--output", str(out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in own.iterdir()] == ["alertmanager.yml"]
    assert (own / "alertmanager.yml").read_text() == "route: {receiver: mine}\n"
    assert (rendered / "coldplate-receivers.yml").read_text() == "- name: coldplate-pager\n"
    assert {name for name, content in before.items() if (rendered / name).read_bytes() != content} == {
        "coldplate-receivers.yml"
    }
