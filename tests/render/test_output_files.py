"""Every kind of `render` leaves a file alone that somebody else wrote, and replaces its own."""

import re
from pathlib import Path

import pytest

from agent import cli

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"/runbooks/(\w+)")
FOREIGN = {
    "dashboards": ("node.json", '{"uid": "my-node", "title": "Mine"}\n'),
    "rules": ("fleet.rules.yml", "groups: []\n"),
    "runbooks": ("index.html", "<title>Our wiki</title>\n"),
    "alertmanager": ("alertmanager.yml", "route: {receiver: mine}\n"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_directory_with_a_foreign_file_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    name, text = FOREIGN[kind]
    (tmp_path / name).write_text(text)
    assert cli.main(["render", kind, "--output", str(tmp_path)]) == 2
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: text}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_it_wrote_it_writes_again(kind: str, tmp_path: Path) -> None:
    for _ in range(2):
        assert cli.main(["render", kind, "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / FOREIGN[kind][0]).exists()


def test_a_link_that_leads_nowhere_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "alertmanager.yml").symlink_to(tmp_path / "gone")
    assert cli.main(["render", "alertmanager", "--output", str(tmp_path)]) == 2
    assert (tmp_path / "alertmanager.yml").is_symlink()


def test_a_configuration_in_which_a_key_is_set_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "coldplate.yaml"
    words = ["render", "config-file", "--output", str(file)]
    assert cli.main(words) == cli.main(words) == 0
    default = file.read_text()
    for edited in (f"{default}state_dir: /data\n", default.replace("  #rack: r12", "  rack: r12"), "node: {rack: a}\n"):
        file.write_text(edited)
        assert cli.main(words) == 2
        assert file.read_text() == edited
    (tmp_path / "metrics.md").write_text("# My notes\n")
    assert cli.main(["render", "metrics", "--output", str(tmp_path / "metrics.md")]) == 2


def test_runbooks_are_where_links_of_alerts_lead_on_any_web_server(tmp_path: Path) -> None:
    """A web server answers a directory's name with its index.html: BASE/GpuLost needs no setting of its own."""
    assert cli.main(["render", "runbooks", "--output", str(tmp_path)]) == 0
    index = (tmp_path / "index.html").read_text()
    assert 'href="GpuLost"' in index
    page = (tmp_path / "GpuLost" / "index.html").read_text()
    assert "<title>GpuLost</title>" in page
    assert "http" not in page.partition("<main>")[2].partition("</nav>")[0]
    assert 'href="../"' in page
    for path in ("alerts/rules/*.yml", "packaging/fleet/rules/*.yml"):
        for text in (file.read_text() for file in ROOT.glob(path)):
            assert [name for name in LINK.findall(text) if not (tmp_path / name / "index.html").is_file()] == []


def test_rules_for_a_server_have_those_of_the_fleet_board_and_no_advice(tmp_path: Path) -> None:
    for options in ([], ["--for-shard"]):
        out = tmp_path / "-".join(["out", *options])
        assert cli.main(["render", "rules", "--output", str(out), *options]) == 0
        names = {path.name for path in out.iterdir()}
        assert "fleet.rules.yml" in names
        assert "advice.yml" not in names
