"""The examples for schedulers, run by a real shell with stand-ins for what they call."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "packaging"
LINE = (
    "COLDPLATE {} - nvlinks: GPU 2: 17 up, 1 down; 21 of 22 checks ok (dgx-h100) | ok=21 warning=0 critical=1 unknown=0"
)
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
REASON = "coldplate: nvlinks: GPU 2: 17 up, 1 down; 21 of 22 checks ok (dgx-h100)"


class Shell:
    """A folder of stand-ins, and what was said to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        for name in ("scontrol", "logger"):
            self.stand_in(name, f'echo {name} "$@" >> {self.calls}\ncat >> {self.folder}/log\n')

    def stand_in(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)

    def run(self, script: str, status: int, saying: str | None = None) -> tuple[int, str, list[str]]:
        """Its status and output where the check ends with this status, and the calls that it made."""
        self.calls.write_text("")
        saying = saying if saying is not None else f'echo "{LINE.format(WORDS[status])}"'
        self.stand_in("coldplate", f'echo "$@" > {self.folder}/arguments\n{saying}\nexit {status}\n')
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "COLDPLATE": str(self.folder / "coldplate"),
            "COLDPLATE_TOLD": str(self.folder / "told"),
            "SLURMD_NODENAME": "n17",
            "COLDPLATE_SCONTROL_LIMIT": "0.3s",
        }
        done = subprocess.run([ROOT / script], env=environment, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout, self.calls.read_text().splitlines()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize(("status", "prolog", "plugin"), [(0, 0, 0), (1, 0, 0), (2, 1, 1), (3, 0, 2)])
def test_the_prolog_fails_on_a_critical_finding_alone_and_the_plugin_prints_it(
    shell: Shell, status: int, prolog: int, plugin: int
) -> None:
    got, out, calls = shell.run("slurm/coldplate-prolog.sh", status)
    assert (got, out) == (prolog, "")
    assert calls == (["logger -t coldplate-check"] if status else [])
    assert (shell.folder / "arguments").read_text() == "check --timeout 5s --skip alerts\n"
    got, out, _ = shell.run("node-problem-detector/coldplate-check.sh", status)
    assert (got, out) == (plugin, LINE.format(WORDS[status]).partition(" | ")[0] + "\n")


def test_the_health_check_drains_once_per_finding_and_forgets_it_afterwards(shell: Shell) -> None:
    drained = f"scontrol update NodeName=n17 State=drain Reason={REASON}"
    for status, told in ((0, []), (2, [drained]), (2, []), (1, []), (3, []), (2, [drained])):
        got, out, calls = shell.run("slurm/coldplate-health-check.sh", status)
        assert (got, out) == (0, "")
        assert [call for call in calls if call.startswith("scontrol")] == told
    remembered = shell.folder / "told"
    long_ago = remembered.stat().st_mtime - 3700
    os.utime(remembered, (long_ago, long_ago))  # a node that was resumed as it was is drained again within the hour
    for told in ([drained], []):
        calls = shell.run("slurm/coldplate-health-check.sh", 2)[2]
        assert [call for call in calls if call.startswith("scontrol")] == told


@pytest.mark.parametrize(("body", "ended"), [("exec sleep 60", 124), ("exit 1", 1)])
def test_a_silent_controller_holds_up_no_health_check_and_is_asked_again(shell: Shell, body: str, ended: int) -> None:
    shell.stand_in("scontrol", f'echo scontrol "$@" >> {shell.calls}\n{body}\n')
    started = time.monotonic()
    for _ in range(2):
        got, _, calls = shell.run("slurm/coldplate-health-check.sh", 2)
        assert [call.split()[0] for call in calls] == ["logger", "scontrol", "logger"]
        assert got == 1
    assert time.monotonic() - started < 10.0
    assert f"the node is not drained: scontrol ended with status {ended} " in (shell.folder / "log").read_text()
    assert not (shell.folder / "told").exists()


@pytest.mark.parametrize("script", ["coldplate-prolog.sh", "coldplate-health-check.sh"])
@pytest.mark.parametrize(
    ("status", "saying", "logged"),
    [
        (3, "echo no answer >&2", "no answer"),
        (127, "echo not found >&2", "not found"),
        (137, "", "it ended with status 137"),
    ],
)
def test_why_nothing_could_be_checked_is_in_the_log(
    shell: Shell, script: str, status: int, saying: str, logged: str
) -> None:
    assert shell.run(f"slurm/{script}", status, saying)[0] == 0
    assert (shell.folder / "log").read_text() == f"{logged}\n"
    assert shell.run("node-problem-detector/coldplate-check.sh", status, saying)[:2] == (
        2,
        f"{logged}\n" if saying else "\n",
    )


PLUGIN_KEYS = {"plugin", "source", "conditions", "rules", "pluginConfig", "metricsReporting"}
RULE_KEYS = {"type", "condition", "reason", "path", "args", "timeout", "invoke_interval"}
BOUND_KEYS = {
    "invoke_interval",
    "timeout",
    "max_output_length",
    "concurrency",
    "enable_message_change_based_condition_update",
    "skip_initial_status",
}
"""What CustomPluginConfig, CustomRule and pluginGlobalConfig of node-problem-detector know; it passes over the rest."""


def seconds_of(text: str) -> float:
    """A duration as Go's time.ParseDuration takes it, as far as seconds and minutes go."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)", text)
    assert found is not None, text
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[found[2]]


def test_the_plugins_configuration_is_what_node_problem_detector_takes() -> None:
    """By ApplyConfiguration and Validate of its pkg/custompluginmonitor/types/config.go."""
    folder = ROOT / "node-problem-detector"
    config = json.loads((folder / "coldplate-check.json").read_text())
    (rule,), bounds = config["rules"], config["pluginConfig"]
    assert config["plugin"] == "custom"
    assert (config.keys() <= PLUGIN_KEYS, rule.keys() <= RULE_KEYS, bounds.keys() <= BOUND_KEYS) == (True, True, True)
    assert seconds_of(bounds["invoke_interval"]) > 0
    assert seconds_of(rule["timeout"]) <= seconds_of(bounds["timeout"])
    assert rule["type"] == "permanent"
    assert [(each["type"], each.keys()) for each in config["conditions"]] == [
        (rule["condition"], {"type", "reason", "message"})
    ]
    script = (folder / Path(rule["path"]).name).read_text()
    given = re.search(r"--timeout (\S+?)}", script)
    assert given is not None
    assert seconds_of(given[1]) < seconds_of(rule["timeout"])  # or it would be ended, and unknown
    # Its container's configuration is in /config, and it starts there.
    assert Path("/", rule["path"]) == Path("/config/plugin/coldplate-check.sh")
