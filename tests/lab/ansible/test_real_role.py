"""The role, played by the real Ansible against this machine, whose directories and systemctl are a test's own."""

import grp
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent.config.reading import load
from tests.deployment.role_files import ROLE, ROOT
from tests.servers import need

LIBRARY = ROOT / ".programs" / "deployers" / "library"
PLAYS = Path(__file__).with_name("plays.yml")
UNITS = {"coldplate.service", "coldplate-broker.socket", "coldplate-kubelet.socket"}
INVENTORY = Path(__file__).with_name("inventory.yml").read_text()


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.etc = folder / "etc"
        self.state = folder / "bin" / "state"
        self.state.mkdir(parents=True)
        systemctl = folder / "bin" / "systemctl"
        systemctl.write_text(Path(__file__).with_name("systemctl.sh").read_text())
        systemctl.chmod(0o755)
        rules = folder / "site.rules.yml"
        rules.write_text("groups: [{name: site, rules: [{alert: SiteHot, expr: up == 0}]}]\n")
        self.variables = {
            "coldplate_prefix": folder / "prefix",
            "coldplate_directory": self.etc,
            "coldplate_group": grp.getgrgid(os.getgid()).gr_name,
            "ansible_python_interpreter": sys.executable,
        }
        (folder / "inventory.yml").write_text(INVENTORY.replace("SITE-RULES", str(rules)))

    def install(self) -> None:
        (self.folder / "prefix" / "bin").mkdir(parents=True)
        (self.folder / "prefix" / "bin" / "coldplate").symlink_to(Path(sys.executable).with_name("coldplate"))

    def play(self, *options: str, file: Path = PLAYS) -> subprocess.CompletedProcess[str]:
        if not LIBRARY.is_dir():
            need("ansible-playbook of `make deployers`")
        given = [word for name, value in self.variables.items() for word in ("-e", f"{name}={value}")]
        settings = {
            "PYTHONPATH": str(LIBRARY),
            "ANSIBLE_HOME": str(self.folder / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_REMOTE_TMP": str(self.folder / "tmp"),
            "ANSIBLE_ROLES_PATH": str(ROLE.parent),
            "ANSIBLE_PIPELINING": "1",
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.folder),
        }
        command = [sys.executable, "-m", "ansible", "playbook", "-i", str(self.folder / "inventory.yml")]
        return subprocess.run(
            [*command, *given, *options, str(file)], capture_output=True, text=True, check=False, env=settings
        )

    def log(self) -> list[str]:
        """What systemctl did since the last time it was asked."""
        path = self.state / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def changes(output: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    play = task = ""
    for line in output.splitlines():
        if begun := re.match(r"PLAY \[(.+?)\]", line):
            play = begun[1]
            found[play] = []
        elif named := re.match(r"(?:TASK|RUNNING HANDLER) \[coldplate : (.+?)\]", line):
            task = named[1]
        elif line.startswith("changed:") and task not in found[play]:
            found[play].append(task)
    return found


def test_a_check_changes_nothing_on_a_bare_node(site: Site) -> None:
    done = site.play("--check", "--diff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not site.etc.exists()
    assert site.log() == []
    assert "Write the configuration file" in changes(done.stdout)["first"]


def test_a_node_is_configured_once_and_told_what_changed(site: Site) -> None:
    site.install()
    done = site.play()
    changed = changes(done.stdout)
    assert changed["again"] == []
    assert changed["a key that a reload applies"] == ["Write the configuration file", "Reload coldplate"]
    assert changed["a key that only a restart applies"][-1] == "Restart coldplate"
    assert site.log() == [
        "enable coldplate.service",
        "enable coldplate-broker.socket",
        "enable coldplate-kubelet.socket",
        "start coldplate-broker.socket",
        "start coldplate-kubelet.socket",
        "start coldplate.service",
        "reload coldplate.service",
        "restart coldplate.service",
    ]
    # The last play's mistake is refused by the agent's own words, and the file of the play before stays.
    assert done.returncode == 2, done.stdout + done.stderr
    assert "samplng: unknown key; did you mean 'sampling'?" in done.stdout + done.stderr
    config = load(site.etc / "coldplate.yaml")
    assert config.rack.peers == ("10.0.0.1:19400", "node-2:19400", "[fd00::3]:19400")
    assert (config.rack.name, config.rack.power_budget, config.node.cluster) == ("r12", 40_800, "west")
    assert config.notify.alertmanager.urls == ("http://other.example:9093",)
    assert config.rules.files == ("builtin", f"{site.etc}/rules/*.yml")
    assert config.rules.override["GpuHot"].annotations == {"summary": "GPU {{ $labels.gpu }} is hot"}
    assert (site.etc / "node.key").stat().st_mode & 0o777 == 0o640
    assert (site.etc / "node.key").read_text() == "no secret"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("coldplate_package=https://site.example/coldplate.deb", "give its coldplate_package_checksum"),
        ("coldplate_port=many", "coldplate_port"),
    ],
)
def test_a_mistake_is_told_before_anything_is_done(site: Site, given: str, told: str) -> None:
    done = site.play("-e", given)
    assert done.returncode == 2
    assert told in done.stdout + done.stderr
    assert not site.etc.exists()


def test_a_node_without_the_program_is_told_what_to_do(site: Site) -> None:
    done = site.play()
    assert done.returncode == 2
    assert "name a package in coldplate_package" in done.stdout + done.stderr


def test_a_certificate_makes_the_port_protected(site: Site) -> None:
    """The web configuration is written before the configuration that names it is checked."""
    site.install()
    inventory = yaml.safe_load((site.folder / "inventory.yml").read_text().replace("!unsafe", ""))
    inventory["all"]["vars"]["coldplate_web_config"] = {"basic_auth_users": {"prometheus": "$2y$10$" + "a" * 53}}
    del inventory["all"]["vars"]["coldplate_config"]
    (site.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
    once = site.folder / "once.yml"
    once.write_text("- {name: first, hosts: node-1, gather_facts: false, roles: [coldplate]}\n")
    done = site.play(file=once)
    assert done.returncode == 0, done.stdout + done.stderr
    assert load(site.etc / "coldplate.yaml").web.config_file == f"{site.etc}/web.yml"
    assert "$2y$" not in done.stdout
