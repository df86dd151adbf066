"""What doctor says of a node as files: a line for each subject, and for what is wrong with it the remedy."""

import json
import os
import stat
import time
from pathlib import Path

import pytest

from agent import __version__, cli
from agent.commands.doctor import doctor_finding, doctor_node
from agent.commands.doctor.checks.host_access import UNSYNCHRONISED
from agent.commands.doctor.checks.host_access import judge_clock as judge
from agent.commands.doctor.doctor_finding import DoctorFinding, DoctorVerdict
from agent.commands.doctor.doctor_node import READ, WRITE, AgentUser, fetch_snapshot, parse_snapshot
from agent.lib.http_target import HttpTarget
from agent.model import Outcome
from tests.doctor.conftest import (
    AGENT,
    EVERYTHING_SEEN,
    MODULE,
    SCRAPER,
    UP,
    NodeTree,
    Spoiled,
    Start,
    all_of,
    answering,
    put,
    reading,
    refuse,
    remove,
    silent_broker,
    snapshot,
    write,
)  # fmt: skip
from tests.fakes.trees import OddTree
from tests.servers import free_ports


def test_a_node_that_is_well_has_nothing_to_mend(tree: NodeTree, server: Start) -> None:
    receiver = server(lambda _: (200, b""))
    config = f"{answering(tree, server, UP)}notify: {{alertmanager: {{urls: ['{receiver}']}}}}\n"
    found = tree.findings(config)
    wrong = [each for each in found if each.verdict is not DoctorVerdict.OK and each.subject not in ("broker", "clock")]
    assert wrong == []
    subjects = list(dict.fromkeys(each.subject for each in found))
    assert subjects == [
        "configuration", "agent", "driver", "devices", "kernel log", "processor energy", "BMC", "processes", "broker",
        "scheduler", "fabric", "clock", "port", "rules", "receivers", "scrapes", "state", "unit", "sandbox",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "subject", "verdict", "found"),
    [
        (remove("proc/driver/nvidia/version"), "driver", "FAIL", "8 NVIDIA GPUs on the PCI bus, and the kernel module"),
        (remove("proc/driver/nvidia/gpus/0000:03:00.0"), "driver", "FAIL", "module 550.54.15 took 7 of the 8 GPUs on"),
        (remove("root/usr/lib"), "driver", "FAIL", "libnvidia-ml.so.1 is nowhere"),
        (all_of(put("root/opt/driver/libnvidia-ml.so.1", ""),  # the loader's cache goes before the usual folders
                put("root/etc/ld.so.cache", "ld.so-1.7.0\0libnvidia-ml.so.1\0/opt/driver/libnvidia-ml.so.1\0")),
         "driver", "OK", "/root/opt/driver/libnvidia-ml.so.1"),
        (put("proc/driver/nvidia/version", MODULE.replace("550.54.15", "535.1.2")), "driver", "FAIL",
         "/root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 is 550.54.15, and the loaded module is 535.1.2"),
        (remove("proc/60"), "driver", "WARN",
         "nvidia-persistenced does not run: without persistence mode GPUs sleep between users"),
        (remove("root/dev/nvidia3"), "devices", "FAIL", "/root/dev has 7 GPUs, the PCI bus has 8"),
        (remove("root/dev/nvidiactl"), "devices", "FAIL", "/root/dev has 8 GPUs and no nvidiactl"),
        (refuse("root/dev/nvidia2"), "devices", "FAIL", "the agent (uid 990) may not open /root/dev/nvidia2"),
        (remove("root/dev/kmsg"), "kernel log", "WARN", "/root/dev/kmsg is not there"),
        (refuse("sys/class/powercap/intel-rapl:0/energy_uj", 0o400), "processor energy", "WARN",
         "the agent (uid 990) may not read /sys/class/powercap/intel-rapl:0/energy_uj: no coldplate_node_rapl"),
        (put("proc/self/mounts", "proc /proc proc rw,hidepid=invisible 0 0\n"), "processes", "WARN",
         "/proc is mounted with hidepid=invisible: the agent (uid 990) sees no processes of others"),
        (remove("sys/class/infiniband"), "fabric", "OK", "no adapter in /sys/class/infiniband"),
        (all_of(remove("sys/class/infiniband"), put("sys/bus/pci/devices/0000:0a:00.0/vendor", "0x15b3\n"),
                put("sys/bus/pci/devices/0000:0a:00.0/class", "0x020700\n")), "fabric", "FAIL",
         "1 InfiniBand adapters on the PCI bus, and no /sys/class/infiniband"),
        (put("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n"), "fabric", "WARN", "mlx5_1 port 1 is DOWN"),
        (put("sys/class/infiniband/mlx5_1/ports/1/state", "2: INIT\n"), "fabric", "WARN", "mlx5_1 port 1 has a link"),
        (remove("root/var/lib/coldplate"), "state", "OK", "/root/var/lib/coldplate is made by systemd when"),
        (refuse("root/var/lib/coldplate", 0o700), "state", "FAIL", "the agent (uid 990) may not write /root/var/lib"),
        (put("root/var/lib/coldplate/alerts.state.damaged", "x"), "state", "WARN",
         "/root/var/lib/coldplate has alerts.state.damaged: what was in there is lost"),
        (remove("root/etc/systemd/system/coldplate.service"), "unit", "WARN", "coldplate.service is not installed"),
        (remove("root/etc/systemd/system/multi-user.target.wants/coldplate.service"), "unit", "WARN",
         "coldplate.service is not enabled"),
        (remove("root/opt/coldplate/bin/coldplate"), "unit", "FAIL",
         "/root/etc/systemd/system/coldplate.service starts /root/opt/coldplate/bin/coldplate, which is not there"),
        (remove(f"proc/{AGENT}"), "unit", "FAIL", "coldplate.service does not run"),
        (remove("root/run/systemd"), "unit", "OK", "no systemd here"),
        (lambda tree: tree.process(70, "kubelet", "/system.slice/kubelet.service"), "scheduler", "WARN",
         "a kubelet runs, and /run/coldplate-kubelet.sock is not there"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(tree: NodeTree, spoil: Spoiled, subject: str, verdict: str, found: str) -> None:
    spoil(tree)
    assert [each for each in tree.told(subject) if each[0] == verdict and each[1].startswith(found)]


def test_a_state_directory_that_is_not_there_yet_can_be_made_or_not(tree: NodeTree) -> None:
    (tree.place / "open").mkdir()
    (tree.place / "open").chmod(0o777)
    assert tree.told("state", f"web: {{listen: [':1']}}\nstate_dir: {tree.place}/open/a/b\n")[0][0] == "OK"
    (tree.place / "open").chmod(0o700)
    (told,) = tree.told("state", f"web: {{listen: [':1']}}\nstate_dir: {tree.place}/open/a/b\n")
    assert told[0] == "WARN"


def test_jobs_are_seen_by_their_cgroups_and_a_scheduler_that_is_not_asked_is_named(tree: NodeTree) -> None:
    assert tree.told("scheduler") == [("OK", "cgroup v2; slurm (1 jobs in cgroups)")]
    warned, _ = tree.told("scheduler", "web: {listen: [':1']}\njobs: {sources: [pbs]}\n")
    assert warned == ("WARN", "slurm runs here and is not asked")


def test_a_port_is_free_the_agent_s_or_somebody_else_s(tree: NodeTree, server: Start) -> None:
    (port,) = free_ports(1)
    config = f"web: {{listen: [':{port}']}}\n"
    assert tree.told("port", config) == [("OK", f"{port} is free")]
    tree.connections(port, peer=SCRAPER)
    table = tree.at("proc/net/tcp").read_text().splitlines(keepends=True)
    write(tree.at("proc/net/tcp"), table[0] + table[2])  # a connection of a client that was given this port
    assert tree.told("port", config) == [("OK", f"{port} is free")]
    tree.process(90, "nginx", "/system.slice/nginx.service")
    tree.connections(port, 90)
    assert tree.told("port", config) == [("FAIL", f"{port} is taken by nginx, process 90, and no agent answers there")]
    config = answering(tree, server, UP)
    ((verdict, found),) = tree.told("port", config)
    assert (verdict, found.partition(" ")[2]) == ("OK", "is the running agent's")


def test_who_scrapes_is_seen_by_the_connections(tree: NodeTree, server: Start) -> None:
    assert tree.told("scrapes", answering(tree, server, UP)) == [("OK", "connected from 10.0.0.10")]
    config = answering(tree, server, UP, peer="0100007F")
    (told,) = tree.told("scrapes", config)
    assert told[0] == "WARN"
    here, there = f"{'0' * 32}:{int(tree.url.rpartition(':')[2]):04X}", f"{'0' * 16}FFFF0000{SCRAPER}:C001"
    write(tree.at("proc/net/tcp6"), f"sl local remote\n  0: {here} {there} 01 0:0 0:0 0 0 0 779 1 0\n")
    assert tree.told("scrapes", config) == [("OK", "connected from 10.0.0.10")]
    (told,) = tree.told("scrapes", "web: {listen: ['127.0.0.1:19400']}\n")
    assert told == ("WARN", "the agent listens on 127.0.0.1 alone: no other node can scrape it")


@pytest.mark.parametrize(
    ("body", "verdict", "found"),
    [
        (snapshot(age=45), "FAIL", "the last sample is 45 s old"),
        (snapshot(reading("coldplate_config_last_reload_successful", 0)), "FAIL", "the last reload was refused"),
        (snapshot(reading("coldplate_thread_up", 0, thread="rules")), "FAIL", "its thread rules is stuck or failed"),
        (snapshot(reading("coldplate_worker_up", 0)), "FAIL", "its device worker does not run"),
        (
            snapshot(reading("coldplate_driver_pause_end_timestamp_seconds", 9), reading("coldplate_worker_up", 0)),
            "WARN",
            "it has released the driver",
        ),
        (snapshot(reading("coldplate_worker_restarts_total", 9)), "WARN", "its device worker was restarted 9 times"),
        (snapshot(reading("coldplate_state_write_successful", 0, file="alerts")), "FAIL", "it cannot write alerts"),
        (snapshot(reading("coldplate_synthetic_info", 1, scenario="idle")), "WARN", "its devices are synthetic"),
        (UP.replace(b'"version": "', b'"version": "0.0.'), "WARN", "version 0.0."),
    ],
)
def test_what_the_running_agent_says_of_itself(
    tree: NodeTree, server: Start, body: bytes, verdict: str, found: str
) -> None:
    told = tree.told("agent", answering(tree, server, body))
    assert [each for each in told if each[0] == verdict and each[1].startswith(found)]


@pytest.mark.parametrize("answer", [(200, b"{}"), (200, b"<html>"), (404, UP), (200, b'{"data": {"age": "x"}}')])
def test_another_server_on_the_port_is_no_agent(server: Start, answer: tuple[int, bytes]) -> None:
    view, why = fetch_snapshot(HttpTarget(server(lambda path: answer)), time.monotonic)
    assert view is None
    assert why


def test_gpus_that_the_agent_reads_need_no_trace_in_proc(tree: NodeTree, server: Start) -> None:
    tree.remove("proc/driver")
    tree.remove("sys/bus")
    config = answering(tree, server, UP)
    assert ("OK", "no /proc/driver/nvidia, but the agent reads 8 GPUs") in tree.told("driver", config)


@pytest.mark.parametrize(("enabled", "warned"), [((1, 1), False), ((1, 0), True), ((), True)])
def test_persistence_mode_may_be_on_without_its_daemon(
    tree: NodeTree, server: Start, enabled: tuple[int, ...], warned: bool
) -> None:
    tree.remove("proc/60")
    values = [reading("coldplate_gpu_persistence_enabled", on, gpu=str(gpu)) for gpu, on in enumerate(enabled)]
    told = tree.told("driver", answering(tree, server, snapshot(*EVERYTHING_SEEN, *values)))
    assert any(text.startswith("nvidia-persistenced does not run") for _, text in told) is warned


def test_what_the_sandbox_hides_is_what_the_agent_does_not_see_and_doctor_does(tree: NodeTree, server: Start) -> None:
    denied = {"backend": "power", "metric": "coldplate_node_rapl_energy_joules_total", "labels": {}, "reason": "denied",
              "detail": "/sys/class/powercap/intel-rapl:0/energy_uj: Permission denied"}  # fmt: skip
    unsupported = {**denied, "reason": "unsupported", "detail": "this node has none"}
    body = snapshot(*EVERYTHING_SEEN[1:9], gaps=[denied, denied, unsupported])
    assert tree.told("sandbox", answering(tree, server, body)) == [
        ("WARN", f"coldplate_node_rapl_energy_joules_total is denied: {denied['detail']}"),
        ("FAIL", "the PCI bus has 8 GPUs, and the agent knows 7 (7 up)"),
        ("WARN", "sysfs has mlx5_1, and the agent does not"),
    ]  # fmt: skip


def test_an_agent_that_runs_and_does_not_answer_is_a_failure(tree: NodeTree) -> None:
    ((verdict, found),) = tree.told("agent")
    assert verdict == "FAIL"
    assert found.startswith(f"process {AGENT} runs, and does not answer: http://127.0.0.1:1: Connection refused")


@pytest.mark.parametrize(
    ("status", "verdict", "found"),
    [
        (200, "OK", "answers"),
        (401, "FAIL", "refuses the login (HTTP status 401)"),
        (404, "FAIL", "is answered with HTTP"),
    ],
)
def test_an_alertmanager_is_asked_whether_it_is_ready(
    tree: NodeTree, server: Start, status: int, verdict: str, found: str
) -> None:
    url = server(lambda path: (status if path == "/am/-/ready" else 500, b""))
    told = tree.told("receivers", f"web: {{listen: [':1']}}\nnotify: {{alertmanager: {{urls: ['{url}/am']}}}}\n")
    assert [each for each in told if each[0] == verdict and found in each[1]]
    assert len(told) == 1


def test_a_webhook_is_reached_whatever_it_answers_and_one_that_is_away_is_not(tree: NodeTree, server: Start) -> None:
    url = server(lambda path: (405, b""))
    (port,) = free_ports(1)
    urls = f"['{url}/secret-path', 'http://127.0.0.1:{port}/hook']"
    here, away = tree.told("receivers", f"web: {{listen: [':1']}}\nnotify: {{webhook: {{urls: {urls}}}}}\n")
    assert here[0] == "OK" and "secret-path" not in here[1]
    assert away[0] == "FAIL" and "Connection refused" in away[1]


def redfish_findings(tree: NodeTree, url: str) -> list[tuple[str, str]]:
    config = f"web: {{listen: [':1']}}\nbackends: {{redfish: {{url: '{url}'}}}}\n"
    return [finding for finding in tree.told("BMC", config) if "Redfish" in finding[1]]


@pytest.mark.parametrize(("status", "found"), [(401, "refuses the login"), (404, "HTTP status 404")])
def test_a_bmc_that_refuses_is_asked_once(tree: NodeTree, server: Start, status: int, found: str) -> None:
    asked: list[str] = []

    def answer(path: str) -> tuple[int, bytes]:
        asked.append(path)
        return status, b"{}"

    ((verdict, text),) = redfish_findings(tree, server(answer))
    assert verdict == "FAIL"
    assert found in text
    assert asked == ["/redfish/v1/Chassis"]


POWER = b'{"PowerControl": [{"PowerConsumedWatts": 7000}]}'
BMC = {
    "/redfish/v1/Chassis": b'{"Members": [{"@odata.id": "/redfish/v1/Chassis/1"}]}',
    "/redfish/v1/Chassis/1": b'{"Id": "1", "Power": {"@odata.id": "/redfish/v1/Chassis/1/Power"}}',
    "/redfish/v1/Chassis/1/Power": POWER,
}


@pytest.mark.parametrize(
    ("documents", "verdict", "found"),
    [
        (BMC, "OK", "takes the login, and reports 7000 W"),
        ({**BMC, "/redfish/v1/Chassis/1/Power": b"{"}, "WARN", "/redfish/v1/Chassis/1/Power: invalid JSON"),
        ({**BMC, "/redfish/v1/Chassis/1": b"{}"}, "WARN", "no chassis that is a whole node reports its power"),
        ({**BMC, "/redfish/v1/Chassis/1/Power": POWER.replace(b"7000", b"0")}, "WARN", "reports 0 W"),
        ({"/redfish/v1/Chassis": b"<html>"}, "WARN", "/redfish/v1/Chassis: invalid JSON"),
    ],
)
def test_the_power_of_a_bmc_is_read(
    tree: NodeTree, server: Start, documents: dict[str, bytes], verdict: str, found: str
) -> None:
    url = server(lambda path: (200, documents[path]) if path in documents else (404, b"{}"))
    ((actual, text),) = redfish_findings(tree, url)
    assert actual == verdict
    assert found in text


@pytest.mark.parametrize(("source", "verdict"), [("redfish", "OK"), ("ipmi", "WARN")])
def test_a_bmc_that_is_too_slow_for_doctor_is_read_by_the_agent(
    tree: NodeTree, server: Start, source: str, verdict: str
) -> None:
    url = server(lambda path: (503, b"") if path.endswith("/Power") else (200, BMC[path]))
    power = reading("coldplate_node_power_watts", 7000, source=source)
    config = answering(tree, server, snapshot(*EVERYTHING_SEEN, power))
    told = tree.told("BMC", f"{config}backends: {{redfish: {{url: '{url}'}}}}\n")
    assert [each[0] for each in told if "Redfish" in each[1]] == [verdict]


def test_files_of_logins_must_be_readable_for_the_agent(tree: NodeTree, tmp_path: Path) -> None:
    secret = write(tmp_path / "token", "x", 0o600)
    if os.geteuid() == 0:
        os.chown(secret, 0, 0)
    urls = "urls: ['https://127.0.0.1:1'], "
    config = (
        f"web: {{listen: [':1']}}\nnotify:\n  alertmanager: {{{urls} bearer_token_file: {secret}}}\n"
        f"  webhook: {{{urls} ca_file: {tmp_path}/none}}\n"
    )
    told = tree.told("configuration", config)
    assert ("FAIL", f"notify.webhook.ca_file: {tmp_path}/none is not a file") in told
    if os.geteuid() == 0:  # else the file belongs to nobody else
        assert ("FAIL", f"notify.alertmanager.bearer_token_file: the agent (uid 990) may not read {secret}") in told


def test_every_rule_file_that_cannot_be_loaded_is_named(tree: NodeTree, tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.yml", "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'up =='}\n")
    told = tree.told("rules", f"web: {{listen: [':1']}}\nrules: {{files: ['{bad}']}}\n")
    assert [each[0] for each in told] == ["FAIL"]
    assert f"{bad}:4: group 'g', rule 1, alert 'A': expr" in told[0][1]
    bad.write_text(bad.read_text().replace("up ==", "up"))
    assert tree.told("rules", f"rules: {{files: ['{bad}']}}\n") == [("OK", "1 rule in 1 file")]


def test_a_check_that_hangs_is_a_finding_and_holds_up_no_other(tree: NodeTree) -> None:
    """A file that hangs is a FIFO that nobody writes to: opening it waits."""
    tree.remove("sys/class/infiniband/mlx5_0/ports/1/state")
    os.mkfifo(tree.at("sys/class/infiniband/mlx5_0/ports/1/state"))
    tree.patience = 1.0
    told = dict.fromkeys(each[1] for each in tree.told("fabric"))
    assert [text for text in told if text.startswith("/sys/class/infiniband/mlx5_0: no answer for ")]
    assert "mlx5_1 port 1 is active, 400 Gb/sec (4X NDR), InfiniBand" in told
    with tree.at("sys/class/infiniband/mlx5_0/ports/1/state").open("w"):
        pass  # the reader ends


@pytest.mark.parametrize("owner", [990, 12345], ids=["silent", "of another user"])
def test_a_broker_that_does_not_answer_or_that_another_user_owns_is_a_finding(tree: NodeTree, owner: int) -> None:
    path = tree.at("root/run/coldplate-broker.sock")
    with silent_broker(path):
        if os.geteuid() == 0:
            os.chown(path, owner, owner)
        tree.patience = 0.3
        told = tree.told("broker")
    assert [each for each in told if each[0] == "FAIL"]


def test_a_clock_is_synchronised_or_not() -> None:
    found = [judge(*each).verdict.value for each in ((0, 0.01), (0, 3.0), (UNSYNCHRONISED, 0.0))]
    assert found == ["OK", "WARN", "WARN"]


@pytest.mark.parametrize(
    ("user", "mode", "want", "may"),
    [
        (AgentUser("a", 5, frozenset({6})), 0o600, READ | WRITE, True),
        (AgentUser("a", 5, frozenset({6})), 0o066, READ, False),  # the owner's bits alone count for the owner
        (AgentUser("a", 9, frozenset({6})), 0o060, READ | WRITE, True),
        (AgentUser("a", 9, frozenset({6})), 0o606, READ, False),
        (AgentUser("a", 9), 0o604, READ, True),
        (AgentUser("a", 9), 0o604, WRITE, False),
        (AgentUser("a", None), 0o660, READ, False),
        (AgentUser("a", 0, overrides=True), 0o000, READ | WRITE, True),
    ],
)
def test_permissions_are_those_of_the_agent_s_user(user: AgentUser, mode: int, want: int, may: bool) -> None:
    status = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, 5, 6, 0, 0, 0, 0))
    assert user.may(want, status) is may


def test_the_user_is_that_of_the_account_or_a_dynamic_one() -> None:
    found = doctor_node.user_of_accounts(["coldplate:x:990:991::/:/"], ["video:x:44:a,coldplate", "b:x:7:", "c:x"])
    assert (found.uid, found.groups) == (990, frozenset({991, 44}))
    assert doctor_node.user_of_accounts([], []).uid is None
    assert doctor_node.user_of_status("Uid:\tx\n") is None


def test_text_and_json_are_printed_and_the_status_is_the_worst_or_of_a_mistake(
    tree: NodeTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roots = [
        f"--path.{name}={tree.at(place)}" for name, place in (("sysfs", "sys"), ("procfs", "proc"), ("rootfs", "root"))
    ]
    file = write(tmp_path / "c.yaml", "web: {listen: [':1']}\nsampling: {fats: 1s}\n")
    assert cli.main(["doctor", f"--config.file={file}", "--url=http://127.0.0.1:1", *roots]) == 1
    text = capsys.readouterr().out
    assert f"FAIL  configuration     {file}:2: sampling.fats: unknown key; did you mean 'fast'?" in text
    assert "fix: correct the file, or its path" in text
    assert "\033" not in text
    assert cli.main(["doctor", f"--config.file={file}", "--url=http://127.0.0.1:1", "--json", *roots]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "FAIL"
    assert {"subject", "verdict", "found", "remedy"} == document["findings"][0].keys()
    assert cli.main(["doctor", "--url", "19400"]) == 2
    assert capsys.readouterr().err.startswith("coldplate doctor: --url: url")


SPOILED = (
    "proc/driver/nvidia/version", "proc/driver/nvidia/gpus", "proc/self/mounts", "proc/net/tcp", "proc/4711/status",
    "proc/50/cgroup", "proc/51/comm", "proc/sys/kernel/dmesg_restrict", "sys/bus/pci/devices/0000:02:00.0/class",
    "sys/bus/pci/devices", "sys/class/infiniband/mlx5_0/ports/1/rate", "sys/class/infiniband/mlx5_1/ports",
    "sys/class/powercap", "root/dev/nvidia0", "root/etc/passwd", "root/etc/group", "root/var/lib/coldplate",
    "root/etc/systemd/system/coldplate.service", "root/usr/lib", "root/run/systemd/system",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_whatever_stands_in_the_place_of_a_file_every_subject_is_told_of(tree: NodeTree, seed: int) -> None:
    odd = OddTree(seed)
    for path in odd.dice.sample(SPOILED, 6):
        odd.spoil(tree.at(path))
    told = [each.subject for each in tree.findings()]
    assert {"configuration", "driver", "fabric", "clock", "port", "rules", "receivers", "state", "unit"} <= set(told)


def test_a_gpu_that_is_passed_through_is_not_missed(tree: NodeTree) -> None:
    tree.at("sys/bus/pci/devices/0000:03:00.0/driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    tree.remove("proc/driver/nvidia/gpus/0000:03:00.0")
    tree.remove("root/dev/nvidia2")
    assert not [each for each in tree.told("driver") + tree.told("devices") if each[0] != "OK"]


def test_the_snapshot_is_read_as_the_agent_writes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["once", "--backend", "none", "--format", "json"]) == 0
    view, why = parse_snapshot(capsys.readouterr().out.encode(), "here")
    assert view is not None, why
    assert [each.outcome for each in view.reports if each.backend == "host"] == [Outcome.OK]
    assert next(view.label_values("coldplate_build_info", "version", 1)) == __version__
    assert view.values("coldplate_node_cpus") == [os.cpu_count()]


def test_the_worst_line_is_the_verdict_and_foreign_text_is_made_harmless() -> None:
    for verdicts, status in (("OK", "OK"), ("OK WARN", "WARN"), ("WARN FAIL OK", "FAIL")):
        made = [DoctorFinding("s", DoctorVerdict(each), "f") for each in verdicts.split()]
        assert doctor_finding.worst(made).value == status
    findings = [DoctorFinding("port", DoctorVerdict.FAIL, "taken by \033[2J", "stop\nit")]
    first, second, count = doctor_finding.lines(findings, coloured=True)
    assert first == "\033[1;31mFAIL\033[0m  port  taken by \\x1b[2J"
    assert second.strip() == "fix: stop\\nit"
    assert count == "\n0 OK, 0 WARN, 1 FAIL"
