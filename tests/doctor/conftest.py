"""A node with eight GPUs, two adapters, Slurm and the agent's units, as files; and servers for it to ask."""

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.commands.doctor.check_runner import examine
from agent.commands.doctor.doctor_finding import DoctorFinding
from agent.commands.doctor.doctor_node import DoctorNode, target_of_agent
from agent.config.reading import parse
from tests.screen.agents import Answers, serving

ROOT = Path(__file__).resolve().parents[2]
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
AGENT = 4711
STATUS = (
    "Name:\tcoldplate\nUid:\t990\t990\t990\t990\nGid:\t990\t990\t990\t990\nGroups:\t990\nCapEff:\t0000000000000000\n"
)
TABLE = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
SCRAPER = "0A00000A"
"""10.0.0.10, as the kernel writes it."""
QUIET = "web: {listen: [':1']}\n"
"""A configuration whose port nobody has."""


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


class NodeTree:
    """The files below `place`; `url` is where its agent answers, if it does."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.url: str | None = None
        self.patience = 4.0
        self._devices()
        self._processes()
        self._installation()

    def at(self, path: str) -> Path:
        return self.place / path

    def remove(self, path: str) -> None:
        shutil.rmtree(self.at(path)) if self.at(path).is_dir() else self.at(path).unlink()

    def node(self, config: str = QUIET) -> DoctorNode:
        """As the configuration in this text has it."""
        parsed = parse(config, "c.yaml")
        target = target_of_agent(parsed, self.url, None)
        return DoctorNode(
            parsed, target, time.monotonic, sysfs=self.at("sys"), procfs=self.at("proc"), root=self.at("root")
        )

    def findings(self, config: str = QUIET) -> list[DoctorFinding]:
        return examine(self.node(config), self.patience)

    def told(self, subject: str, config: str = QUIET) -> list[tuple[str, str]]:
        """DoctorVerdict and text of every line about a subject."""
        lines = [each for each in self.findings(config) if each.subject == subject]
        assert all(each.remedy for each in lines if each.verdict.value != "OK"), "what is wrong can be fixed"
        return [(each.verdict.value, each.found.replace(str(self.place), "")) for each in lines]

    def _devices(self) -> None:
        for number in range(8):
            address = f"0000:{number + 1:02x}:00.0"
            write(self.at(f"sys/bus/pci/devices/{address}/vendor"), "0x10de\n")
            write(self.at(f"sys/bus/pci/devices/{address}/class"), "0x030200\n")
            self.at(f"proc/driver/nvidia/gpus/{address}").mkdir(parents=True)
            write(self.at(f"root/dev/nvidia{number}"), "", 0o666)
        write(self.at("root/dev/nvidiactl"), "", 0o666)
        write(self.at("root/dev/kmsg"), "", 0o600)
        write(self.at("proc/driver/nvidia/version"), MODULE)
        library = write(self.at("root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15"), "")
        (library.parent / "libnvidia-ml.so.1").symlink_to(library.name)
        for name in ("mlx5_0", "mlx5_1"):
            for file, text in {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)",
                               "link_layer": "InfiniBand"}.items():  # fmt: skip
                write(self.at(f"sys/class/infiniband/{name}/ports/1/{file}"), f"{text}\n")
        write(self.at("sys/class/powercap/intel-rapl:0/energy_uj"), "1\n", 0o444)
        write(self.at("sys/fs/cgroup/cgroup.controllers"), "cpu\n")

    def _processes(self) -> None:
        self.process(AGENT, "coldplate", "/system.slice/coldplate.service")
        write(self.at(f"proc/{AGENT}/status"), STATUS)
        self.process(50, "slurmd", "/system.slice/slurmd.service")
        self.process(51, "python", "/system.slice/slurmstepd.scope/job_17/step_0/user/task_0")
        self.process(60, "nvidia-persiste", "/system.slice/nvidia-persistenced.service")
        write(self.at("proc/self/mounts"), "proc /proc proc rw,nosuid 0 0\n")
        write(self.at("proc/sys/kernel/dmesg_restrict"), "1\n")
        self.connections()

    def process(self, pid: int, name: str, cgroup: str) -> None:
        write(self.at(f"proc/{pid}/comm"), f"{name}\n")
        write(self.at(f"proc/{pid}/cgroup"), f"0::{cgroup}\n")

    def connections(self, port: int = 0, holder: int = 0, peer: str = "") -> None:
        """Somebody listens on the port, and a peer is connected to it."""
        lines = [f"   0: 00000000:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 777 1 0\n"] if port else []
        if peer:
            lines.append(f"   1: 0100000A:{port:04X} {peer}:C001 01 0:0 0:0 0 0 0 778 1 0\n")
        write(self.at("proc/net/tcp"), TABLE + "".join(lines))
        if holder:
            self.at(f"proc/{holder}/fd").mkdir(exist_ok=True)
            link = self.at(f"proc/{holder}/fd/3")
            link.unlink(missing_ok=True)
            link.symlink_to("socket:[777]")

    def _installation(self) -> None:
        units = self.at("root/etc/systemd/system")
        units.mkdir(parents=True)
        for unit in (ROOT / "packaging/systemd").iterdir():
            shutil.copy(unit, units)
        for wanted, name in (("multi-user", "coldplate.service"), ("sockets", "coldplate-broker.socket")):
            (units / f"{wanted}.target.wants").mkdir()
            (units / f"{wanted}.target.wants" / name).symlink_to(units / name)
        self.at("root/run/systemd/system").mkdir(parents=True)
        write(self.at("root/opt/coldplate/bin/coldplate"), "#!/bin/sh\n", 0o755)
        write(self.at("root/etc/passwd"), "root:x:0:0::/root:/bin/sh\ncoldplate:x:990:990::/:/usr/sbin/nologin\n")
        write(self.at("root/etc/group"), "coldplate:x:990:\nvideo:x:44:coldplate\n")
        state = self.at("root/var/lib/coldplate")
        state.mkdir(parents=True)
        state.chmod(0o777)
        if os.geteuid() == 0:
            os.chown(state, 990, 990)
            state.chmod(0o700)


Spoiled = Callable[[NodeTree], object]


def refuse(path: str, mode: int = 0o600) -> Spoiled:
    """Give a file to root, or at least to nobody else."""

    def spoil(tree: NodeTree) -> None:
        tree.at(path).chmod(mode)
        if os.geteuid() == 0:
            os.chown(tree.at(path), 0, 0)

    return spoil


def remove(path: str) -> Spoiled:
    return lambda tree: tree.remove(path)


def put(path: str, text: str) -> Spoiled:
    return lambda tree: write(tree.at(path), text)


def all_of(*spoiled: Spoiled) -> Spoiled:
    return lambda tree: [each(tree) for each in spoiled]


@contextmanager
def silent_broker(path: Path) -> Iterator[None]:
    """A broker that is connected to, and says nothing."""
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        os.chdir(path.parent)  # the path of a socket may have 107 bytes
        listener.bind(path.name)
        os.chdir(here)
        listener.listen(8)
        yield


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path / "node")


@pytest.fixture
def server() -> Iterator[Callable[[Answers], str]]:
    """Starts HTTP servers that answer a path with a status and a body; their URLs."""
    with ExitStack() as running:
        yield lambda answers: f"http://{running.enter_context(serving(answers))}"


def reading(metric: str, value: float | None, **labels: str) -> dict[str, Any]:
    return {"metric": metric, "labels": labels, "value": value, "unit": ""}


def snapshot(
    *readings: dict[str, Any], gaps: list[dict[str, Any]] | None = None, age: float = 0.5, **more: Any
) -> bytes:
    """What /api/v1/snapshot answers."""
    from agent import __version__

    build = reading("coldplate_build_info", 1, version=__version__, python="3.12")
    read = [{"backend": each["backend"], "outcome": "ok", "duration": 0.0, "detail": ""} for each in gaps or []]
    data = {"sequence": 1, "timestamp": 1.0, "monotonic": 1.0, "age": age, "readings": [build, *readings],
            "reports": read, "gaps": gaps or [], **more}  # fmt: skip
    return json.dumps({"status": "success", "data": data}).encode()


Start = Callable[[Answers], str]
EVERYTHING_SEEN = [
    *(reading("coldplate_gpu_up", 1, gpu=str(number)) for number in range(8)),
    *(reading("coldplate_infiniband_port_up", 1, device=f"mlx5_{number}", port="1") for number in range(2)),
]
UP = snapshot(*EVERYTHING_SEEN)


def answering(tree: NodeTree, server: Start, body: bytes, peer: str = SCRAPER) -> str:
    """An agent that answers with this snapshot; the configuration in which its port is."""
    tree.url = server(lambda path: (200, body) if path == "/api/v1/snapshot" else (404, b""))
    port = int(tree.url.rpartition(":")[2])
    tree.connections(port, AGENT, peer)
    return f"web: {{listen: [':{port}']}}\n"
