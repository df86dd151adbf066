"""The command line as a user has it: a mistake is one line with what was meant, and so is output that goes nowhere."""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import make_parser
from agent.commands import OTHER, TASKS
from tests import warm

ROOT = Path(__file__).resolve().parents[2]


def run(words: str, *more: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    ended = warm.command([*shlex.split(words), *map(str, more)])
    assert ended.status is not None, "it does not end"
    return ended.status, ended.output.decode(), ended.error.decode()


def run_in_shell(words: str, to: str) -> tuple[int, str]:
    """Exit status and standard error of a process of its own, with a shell's redirection."""
    command = f"exec '{sys.executable}' -m agent.cli {words} {to}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "r.yml"
    path.write_text("groups:\n- name: g\n  rules:\n  - {alert: A, expr: up == 0}\n")
    return path


def test_every_command_is_listed_once_below_a_task_by_help_and_without_a_command() -> None:
    """Without one, the list is short, and the status is that of a mistake."""
    bare, asked, option, one, spelled, version, unknown = warm.commands(
        [each.split() for each in (
            "", "help", "--help", "help rules check", "rules check --help", "version", "help onec")]
    )  # fmt: skip
    assert (bare.status, bare.output) == (2, b"")
    listing = make_parser().format_commands()
    assert listing in bare.error.decode() and listing in option.output.decode()
    assert b"exit status:" in option.output and b"exit status:" not in bare.error
    assert (asked.status, asked.output, asked.error) == (0, option.output, b"")
    assert (one.status, one.output) == (0, spelled.output) and b"check" in one.output
    assert (unknown.status, unknown.output) == (2, b"") and b"did you mean 'once'?" in unknown.error
    assert (version.status, version.error) == (0, b"") and version.output.startswith(b"coldplate ")
    tasks = [name for _, names in TASKS for name in names]
    action = next(each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction))
    assert sorted(tasks) == sorted(action.choices), "add it to TASKS in agent/commands/__init__.py"
    assert f"\n{OTHER}:\n  help [COMMAND]" in make_parser().format_commands()


WITHOUT_OUTPUT = [
    (">/dev/full", "/dev/full", "standard output: No space left on device"),
    (">&-", warm.CLOSED, "standard output is closed; "),
]


@pytest.mark.parametrize(("redirection", "output", "why"), WITHOUT_OUTPUT)
def test_output_that_goes_nowhere_is_one_line(rules: Path, redirection: str, output: str, why: str) -> None:
    answers = [("coldplate once", *run_in_shell("once --backend none", redirection))]
    for words, program in (
        ("once --backend none --format json", "coldplate once"), ("render metrics", "coldplate render metrics"),
        ("render config-file", "coldplate render config-file"), (f"rules check {rules}", "coldplate rules check"),
        ("--help", "coldplate"), ("--version", "coldplate"), ("rules check --help", "coldplate"),
    ):  # fmt: skip
        ended = warm.command(shlex.split(words), output=output)
        answers.append((program, ended.status or 0, ended.error.decode()))
    for program, status, error in answers:
        assert (status, error.count("\n")) == (1, 1), error
        assert error.startswith(f"{program}: {why}")


def test_a_closed_output_harms_no_command_that_writes_elsewhere(tmp_path: Path) -> None:
    assert run_in_shell(f"render metrics --output '{tmp_path}/m.md'", ">&-") == (0, "")
    assert (ROOT / "docs/metrics.md").read_text().startswith((tmp_path / "m.md").read_text())


MISTAKES = [
    ("onec", "coldplate: argument COMMAND: ", "did you mean 'once'?"),
    ("once --bakend x", "coldplate once: unknown option '--bakend'", "did you mean '--backend'?"),
    ("once --backend nvlm", "coldplate once: argument --backend: ", "did you mean 'nvml'?"),
    ("render metrcs", "coldplate render: argument WHAT: ", "did you mean 'metrics'?"),
    ("rules chek x", "coldplate rules: argument ACTION: ", "did you mean 'check'?"),
    ("rules check", "coldplate rules check: ", "FILE"),
    ("run --log.level loud", "coldplate run: argument --log.level: ", "debug, info, warn"),
    ("once extra", "coldplate once: unexpected argument 'extra'", "see coldplate once --help"),
    ("status", "coldplate: argument COMMAND: invalid choice 'status'; choose from ", "check, "),
    ("version x", "coldplate: argument COMMAND: invalid choice 'version'", "choose from"),
]


def test_a_mistake_is_one_line_with_what_was_meant() -> None:
    answers = warm.commands([words.split() for words, _, _ in MISTAKES])
    for (words, start, meant), ended in zip(MISTAKES, answers, strict=True):
        said = ended.error.decode()
        assert (ended.status, ended.output, said.count("\n")) == (2, b"", 1), (words, said)
        assert said.startswith(start)
        assert meant in said


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("report", 2),  # of the command itself
        ("report /none", 1),  # of a file
        ("report --jsn", 2),  # of the parser
        ("report --compare a b --html c", 2),
        ("export /none", 1),
        ("record --info /none", 1),
        ("pause --for x", 2),
        ("compat-check /none", 2),
        ("rules backtest /none", 1),
        ("rules backtest /none --config.file /none", 2),
        ("check --timeout x", 3),
        ("import /none -o /none", 1),
        ("run --config.file /none", 2),
    ],
)
def test_every_error_begins_with_the_whole_name_of_its_command(words: str, status: int) -> None:
    name = "coldplate " + ("rules backtest" if words.startswith("rules") else words.partition(" ")[0])
    ended, _, error = run(words)
    assert (ended, error.count("\n")) == (status, 1), error
    assert error.startswith(f"{name}: ")
    assert error.count(name.rpartition(" ")[2] + ":") == 1


@pytest.mark.parametrize(("backend", "status"), [("auto", 0), ("nvml", 1)])
def test_a_sample_without_gpus_says_why_and_where_it_looked(backend: str, status: int) -> None:
    got, out, told = run(f"once --backend {backend}")
    if 'coldplate_backend_info{backend="nvml",outcome="ok"}' in out:
        pytest.skip("this machine has GPUs")
    assert got == status
    assert "coldplate_node_cpus" in out
    assert told.count("\n") == 1
    assert 'msg="no GPU in this sample: libnvidia-ml.so.1' in told


ADVICE = [
    ("coldplate_gpu_temprature_celsius > 9",
     "coldplate has no metric coldplate_gpu_temprature_celsius; did you mean 'coldplate_gpu_temperature"),
    ("coldplate_zzz > 9", "coldplate has no metric coldplate_zzz; see docs/metrics.md for the names"),
    ('rate(coldplate_gpu_throttle_seconds_total{reson="x"}[5m]) > 0',
     "coldplate_gpu_throttle_seconds_total has no label reson; did you mean 'reason'?"),
    ('coldplate_gpu_ecc_errors_total{link="1"} > 0',
     "coldplate_gpu_ecc_errors_total has no label link; it has gpu, uuid, type"),
    ("coldplate_gpu_power_instant_max_watts > 0",
     "coldplate_gpu_power_instant_max_watts is not exposed by default"),
    ('coldplate_gpu_info{driver_version="1",job="x",datacenter="y",rack="r"} > 0', ""),
    ("coldplate_infiniband_some_driver_s_own_total > 0", ""),
    ("some_other_metric > 0", ""),
    ("max by (gpu) (DCGM_FI_DEV_GPU_TEMP) > 90",
     ("DCGM_FI_DEV_GPU_TEMP is a name of dcgm-exporter: a Prometheus server finds it on coldplate's page only with "
      "metrics: {compatibility: [dcgm]}, a rule on the node never; use coldplate_gpu_temperature_celsius")),
    ("rate(node_infiniband_port_data_received_bytes_total[1m]) > 0",
     "node_infiniband_port_data_received_bytes_total is a name of node_exporter's InfiniBand collector"),
    ("nvidia_smi_temperature_gpu > 0", "nvidia_smi_temperature_gpu is a name of nvidia_gpu_exporter"),
    ("gpu_temperature_C > 0", "gpu_temperature_C is a name of nvitop-exporter"),
    ("gpu_of_some_exporter > 0", ""),
    ("DCGM_FI_DEV_FAN_SPEED > 0", "coldplate does not serve DCGM_FI_DEV_FAN_SPEED: the agent reads no fans"),
    ("DCGM_FI_DEV_NO_SUCH > 0", "coldplate does not serve DCGM_FI_DEV_NO_SUCH: dcgm-exporter may have it"),
    ("sum by (gpu) (increase(coldplate_gpu_xid_errors_total[30m])) > 0",
     "increase() of coldplate_gpu_xid_errors_total misses the first error of each series, which starts with"),
    ('rate((coldplate_nvlink_errors_total{type="replay"}[5m] offset 1h)) > 0',
     "rate() of coldplate_nvlink_errors_total misses the first error of each series, which starts with"),
    ("delta(coldplate_nvlink_errors_total[5m:1m]) > 0", "delta() of coldplate_nvlink_errors_total misses"),
    ("max_over_time(coldplate_gpu_xid_errors_total[5m]) > 0", ""),
    ("increase(coldplate_gpu_xids_total[5m]) > 0 and on(gpu) coldplate_gpu_xid_errors_total > 0", ""),
    ('rate(coldplate_gpu_throttle_seconds_total{reason="hw_slowdown"}[5m]) > 0',
     "coldplate_gpu_throttle_seconds_total has no reason 'hw_slowdown'; it has board_limit, hw_power_brake, hw_th"),
    ('coldplate_gpu_clock_limit_hertz{domain=~"sm|memory"} > 0', ""),
    ('coldplate_gpu_ecc_errors_total{type!="odd"} > 0', ""),
    ('coldplate_gpu_throttle_active{reason="anything"} > 0', ""),
]  # fmt: skip


def test_rules_check_knows_the_names(rules: Path) -> None:
    lines = [f"  - {{alert: A{number}, expr: '{expr}'}}" for number, (expr, _) in enumerate(ADVICE)]
    rules.write_text("\n".join(["groups:", "- name: g", "  rules:", *lines]) + "\n")
    status, out, said = run("rules check", rules)
    assert (status, said) == (0, "")
    found = [line for line in out.splitlines() if "WARNING" in line]
    for number, (_, advice) in enumerate(ADVICE):
        place = f"WARNING: {rules}:{number + 4}: group 'g', rule {number + 1}, alert 'A{number}': "
        assert [line.partition(place)[2][: len(advice)] for line in found if place in line] == [advice] * bool(advice)
    assert len(found) == sum(bool(advice) for _, advice in ADVICE)


@pytest.mark.parametrize("pattern", ["alerts/rules/*.yml", "alerts/server/*.rules.yml"])
def test_there_is_no_advice_on_the_shipped_rules(pattern: str) -> None:
    status, out, _ = run("rules check", *sorted(ROOT.glob(pattern)))
    assert status == 0
    assert "WARNING" not in out


def test_a_configuration_is_checked_without_a_start(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("node: {rack: r12}\n")
    status, out, _ = run("run --config.check --config.file", file)
    assert (status, out[:34]) == (0, "the configuration can be used; it ")
