"""What the kernel and its drivers show: sysfs, procfs, the kernel log, answers of a controller and of the broker."""

import math
import os
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import psutil

from agent.backends.host import HostBackend
from agent.backends.infiniband import InfinibandBackend
from agent.backends.jobs import JobsBackend
from agent.backends.jobs.job_files import TimedReader, read_file, read_minors
from agent.backends.kmsg import KmsgBackend
from agent.backends.optics import OpticsBackend
from agent.backends.power import PowerBackend
from agent.backends.power.ipmi import parse_power_reading
from agent.backends.protocol import AbsentError, BackendProtocol, BackendSample, DeviceError, GpuProcess
from agent.backends.topology import TopologyBackend
from agent.broker.answering import Broker
from agent.broker.asking import BrokerError
from agent.broker.questions import ask_variables, parse_answer
from agent.catalogue.xid_triage import XidClass, called, class_of, codes_of
from agent.commands.top.screen.key_input import KeyReader
from agent.daemon.costs import OwnProcesses
from agent.daemon.pausing import boot_of
from agent.lib.proc_stat import parse_stat
from agent.model import Gpu, GpuIdentity, Instant, Lane, Reading
from tests.host.conftest import DISKSTATS, MEMINFO, NET_DEV, PRESSURE, STAT
from tests.lab.fuzz.target import Target, joined, unpack

NOW = Instant(100.0, 1.7e9)


def check(readings: Iterable[Reading]) -> None:
    """No NaN and nothing infinite but what the conditioner drops, and labels that a page can show."""
    for each in readings:
        low, high = each.metric.span
        assert math.isfinite(each.value) or not low <= each.value <= high, each
        for name, value in each.series.all_labels:
            assert value.isprintable() and len(value) <= 4096, (each, name)


def check_sample(sample: BackendSample) -> None:
    check(sample.readings)
    for gap in sample.gaps:
        assert len(gap.detail) < 5000, gap


def read(backend: BackendProtocol, *lanes: Lane, seconds: Sequence[float] = (0.0,)) -> None:
    """Read these lanes at each of the seconds, hold what they give to the laws, and close."""
    with closing(backend):
        for second, lane in product(seconds, lanes):
            check_sample(backend.read(lane, Instant(100.0 + second, 1.7e9 + second)))


def use_infiniband(data: bytes, folder: Path) -> None:
    unpack(data, folder)
    read(InfinibandBackend(folder), Lane.FAST, Lane.SLOW, Lane.COLD)


def use_ethtool(data: bytes, folder: Path) -> None:
    """Each part, up to a `--`, is a datagram; a `==` ends those of one answer. The first answer is the family's."""
    answers = data.split(b"==")

    class Kernel:
        """Says nothing after its last datagram."""

        def __init__(self) -> None:
            self.datagrams = (answers.pop(0) if answers else b"").split(b"--")

        def send(self, data: bytes, /) -> int:
            return len(data)

        def recv(self, size: int, /) -> bytes:
            if not self.datagrams:
                raise TimeoutError("timed out")
            return self.datagrams.pop(0)[:size]

        def close(self) -> None:
            pass

    port = folder / "class" / "net" / "eth0"
    sensors = port / "device" / "hwmon" / "hwmon0"
    sensors.mkdir(parents=True)
    (sensors / "temp1_input").write_bytes(data[:64])
    (sensors / "temp1_label").write_bytes(data[-64:])
    (port / "type").write_text("1\n")
    read(OpticsBackend(folder, Kernel), Lane.SLOW)


def use_topology(data: bytes, folder: Path) -> None:
    unpack(data, folder)
    gpu = GpuIdentity(Gpu("0", "GPU-1"), "0000:1b:00.0", "", "", ())
    read(TopologyBackend(folder, lambda: [gpu]), Lane.COLD)


def use_power(data: bytes, folder: Path) -> None:
    def absent() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/dev/ipmi0")

    unpack(data, folder)
    backend = PowerBackend(["hwmon", "rapl"], str(folder), ipmi=absent, spawn=lambda job: job())  # type: ignore[arg-type]  # it always raises
    read(backend, Lane.FAST, seconds=range(3))


def use_host(data: bytes, folder: Path) -> None:
    unpack(data, folder)
    before = psutil.PROCFS_PATH
    try:
        read(HostBackend(str(folder), str(folder / "sys")), Lane.SLOW, seconds=range(2))
    finally:
        psutil.PROCFS_PATH = before


def use_jobs(data: bytes, folder: Path) -> None:
    """A procfs with processes 10 to 13 on GPUs, mapping files and pods' log folders."""
    unpack(data, folder)
    gpus = [Gpu(str(index), f"GPU-{index}") for index in range(2)]
    running = {gpus[0]: (GpuProcess(10, 2**30, None), GpuProcess(11, None, 3)), gpus[1]: (GpuProcess(12, 1, None),)}
    backend = JobsBackend(
        folder,
        lambda: running,
        tuple,
        lookup=lambda uid: {0: "root"}[uid],
        kubelet=(),
        ask=_broker(folder),
        mapping_dir=str(folder / "mapping"),
        gpustat=str(folder / "gpustat"),
        pod_logs=str(folder / "pods"),
        cgroups=str(folder / "cgroups"),
        trust_environment=("slurm",),
        read=_readable,
    )
    assert all(number >= 0 for number in read_minors(str(folder), TimedReader(read_file)))
    read(backend, Lane.SLOW, seconds=(0.0, 20.0))


def _readable(path: str, most: int) -> bytes:
    """All but one process's environment, for which the broker is asked."""
    if path.endswith("/11/environ"):
        raise PermissionError(13, "Permission denied", path)
    return read_file(path, most)


def _broker(folder: Path):
    """The broker's answers, read as the agent reads them."""
    broker = Broker(lambda: 0.0, str(folder), device=lambda: None)

    def ask(pid: int, started: int) -> bytes:
        question = ask_variables(pid, started)
        try:
            error, content = parse_answer(question, broker.answer(question))
        except ValueError as problem:
            raise BrokerError(74, str(problem), "broker") from problem
        if error:
            raise OSError(error, os.strerror(error))
        return content

    return ask


def use_broker(data: bytes, folder: Path) -> None:
    """A question of anyone's to the broker, and anything for an answer to the agent."""
    broker = Broker(lambda: 0.0, str(folder), device=lambda: None)
    question, _, answer = data.partition(b"\n\n")
    said = broker.answer(question)
    assert said == b"" or said.startswith(question)
    parse_answer(ask_variables(10, 5), answer)


def use_kmsg(data: bytes, folder: Path) -> None:
    """Each line is a record, with its continuations behind a \\x1f."""

    class Log:
        def __init__(self, path: str) -> None:
            self.skip()

        def read(self) -> bytes:
            return self.records.pop(0) if self.records else b""

        def skip(self) -> None:
            self.records = [line.replace(b"\x1f", b"\n") for line in data.split(b"\n") if line]

        def close(self) -> None:
            pass

    sample = KmsgBackend("/dev/kmsg", Log).read(Lane.FAST, NOW)
    check_sample(sample)
    assert len(sample.readings) <= 5000
    for event in sample.events:
        assert 0 <= event.wall <= NOW.wall, event
        asked = class_of(event.code, event.text)
        assert asked is class_of(event.code) or event.code in codes_of(XidClass.WORDS), event
        assert called(event.code).startswith(str(event.code))


def use_ipmi(data: bytes, folder: Path) -> None:
    assert 0 <= parse_power_reading(data) < 65536


def use_own_processes(data: bytes, folder: Path) -> None:
    unpack(data, folder)
    processes = OwnProcesses(folder)
    for _ in range(2):
        check(processes.read({"main": 10, "worker": 11}))
    assert len(boot_of(folder)) <= 4096
    with suppress(OSError, ValueError, IndexError):
        parse_stat((folder / "10" / "stat").read_bytes())


def use_keys(data: bytes, folder: Path) -> None:
    """As one read, and byte by byte."""
    whole, single = KeyReader(), KeyReader()
    whole.feed(data)
    whole.flush()
    for at in range(min(len(data), 500)):
        single.feed(data[at : at + 1])
    single.flush()


U64 = struct.pack("=Q", 2**40)


def processes(environ: str, *cgroups: str) -> bytes:
    """A procfs whose processes 10 to 12 have this environment and these cgroups, with what else `use_jobs` reads."""
    files: dict[str, str | bytes] = {
        "stat": "cpu  1 2 3\nbtime 1700000000\n", "mapping/0": "123\n", "mapping/GPU-1": "456\n", "gpustat/x": "1\n",
        "driver/nvidia/gpus/0000:1b:00.0/information": "Model: H100\nGPU UUID: GPU-0\nDevice Minor: 0\n",
        "pods/ns_name_0f0e0d0c-0b0a-0908-0706-050403020100/c/0.log": "\n",
    }  # fmt: skip
    for pid, cgroup in enumerate(cgroups, 10):
        files[f"{pid}/stat"] = f"{pid} (py) x) S 1 {pid} {pid} 0 -1{' 0' * 13} 500000 0 0\n"
        files[f"{pid}/status"] = "Name:\tpy\nUid:\t1000\t1000\t1000\t1000\n"
        files[f"{pid}/cgroup"] = f"{cgroup}\n"
        files[f"{pid}/environ"] = environ.replace(" ", "\0") + "\0"
    return joined(files)


CONTAINER = "0123456789abcdef" * 4
JOBS = (
    processes("SLURM_JOB_ID=123 SLURM_JOB_USER=alice SLURM_JOB_START_TIME=1700000000 SLURM_JOB_NAME=a,b",
              "0::/system.slice/slurmstepd.scope/job_123/step_0", f"0::/system.slice/docker-{CONTAINER}.scope",
              "0::/user.slice/user-1000.slice/session-2.scope"),
    processes("NOMAD_ALLOC_ID=1 RAY_JOB_ID=02 JOB_ID=3 SGE_TASK_ID=4 OAR_JOB_ID=6 FLUX_JOB_ID=f12",
              "0::/kubepods.slice/kubepods-pod0f0e0d0c_0b0a_0908_0706_050403020100.slice/"
              f"cri-containerd-{CONTAINER}.scope", "0::/pbspro.slice/pbspro-5.srv.slice",
              "0::/nomad.slice/share.slice/a-b-c-d-e.task.scope"),
    processes("LSB_JOBID=7 _CONDOR_SLOT=slot1_1 _CONDOR_SCRATCH_DIR=/var/dir_99 PBS_JOBID=5.srv",
              "4:memory:/slurm/uid_1000/job_9/step_batch\n3:cpu:/", "0::/htcondor/slot1_1@host",
              "0::/lsf/c/job.7[3].1"),
)  # fmt: skip

PORT = joined({
    **{f"class/infiniband/mlx5_0/ports/1/{name}": f"{value}\n" for name, value in {
        "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand",
        "lid": "0x1f", "counters/port_xmit_data": 2**64 - 1, "counters/port_rcv_data": "N/A (no PMA)",
        "counters/symbol_error": 3, "hw_counters/out_of_sequence": 12,
    }.items()},
    "class/infiniband/mlx5_0/fw_ver": "28.39.1002\n", "class/infiniband/mlx5_0/board_id": "MT_0000000838\n",
    "class/infiniband/mlx5_0/node_guid": "946d:ae03:0012:3456\n",
})  # fmt: skip
METERS = joined({
    f"class/{name}": f"{value}\n" for name, value in {
        "hwmon/hwmon0/name": "power_meter", "hwmon/hwmon0/device/power1_average": 652_100_000,
        "hwmon/hwmon0/device/power1_oem_info": "Module Power Socket 0", "hwmon/hwmon1/name": "power_meter",
        "hwmon/hwmon1/power1_average": "N/A", "powercap/intel-rapl:0/name": "package-0",
        "powercap/intel-rapl:0/energy_uj": 262_143_328_849, "powercap/intel-rapl:0:0/name": "dram",
        "powercap/intel-rapl:0/max_energy_range_uj": 262_143_328_850, "powercap/intel-rapl:0:0/energy_uj": 5,
        "powercap/intel-rapl:0:0/max_energy_range_uj": 0,
    }.items()
})  # fmt: skip
PROCFS = joined({
    "stat": STAT, "meminfo": MEMINFO, "diskstats": DISKSTATS, "net/dev": NET_DEV, "pressure/cpu": PRESSURE,
    "vmstat": "pswpin 0\npswpout 0\n", "loadavg": "1.50 2.25 3.75 2/300 1234\n", "filesystems": "nodev\tproc\n\text4\n",
    "self/mounts": "/dev/nvme0n1p1 / ext4 rw 0 0\n/dev/x /a\\040b xfs rw 0 0\n",
    "sys/block/nvme0n1/device": "", "sys/class/net/eth0/device": "",
})  # fmt: skip

TARGETS = (
    Target("infiniband", ("agent/backends/infiniband/sysfs_attribute.py", "agent/backends/sysfs.py"), use_infiniband,
           (PORT,), (AbsentError, DeviceError)),
    Target("ethtool", ("agent/backends/optics/netlink.py", "agent/backends/optics/ethtool_requests.py",
           "agent/backends/optics/adapter_temperatures.py"), use_ethtool, (), (AbsentError, DeviceError),
           words=(struct.pack("=HH", 12, 2), struct.pack("=HH", 8, 4), U64, b"\xff" * 8)),
    Target("topology", ("agent/backends/topology.py",), use_topology,
           (joined({"class/infiniband/a/device/numa_node": "-1\n", "bus/pci/devices/0000:1b:00.0/numa_node": "0\n"}),),
           (AbsentError, DeviceError)),
    Target("power", ("agent/backends/power/hwmon.py", "agent/backends/power/rapl.py",
           "agent/backends/sysfs.py"), use_power, (METERS,), (AbsentError, DeviceError)),
    Target("host", ("agent/backends/host/kernel.py", "agent/backends/host/disks_and_network.py"), use_host, (PROCFS,),
           (AbsentError, DeviceError)),
    Target("jobs", ("agent/backends/jobs/process_table.py", "agent/backends/jobs/cgroup.py",
           "agent/backends/jobs/job_files.py", "agent/backends/jobs/slurm_steps.py",
           "agent/broker/answering.py", "agent/broker/questions.py"), use_jobs, JOBS),
    Target("broker", ("agent/broker/questions.py", "agent/broker/answering.py"), use_broker,
           (ask_variables(10, 5) + b"\n\n" + ask_variables(10, 5) + b"\0\0\0\0SLURM_JOB_ID=1\0",
           b"pwr1" + bytes(12) + b"\n\n"), (ValueError,)),
    Target("kernel-log", ("agent/backends/kmsg.py", "agent/catalogue/xid_triage.py"), use_kmsg),
    Target("ipmi", ("agent/backends/power/ipmi.py",), use_ipmi,
           (bytes.fromhex("00dc8c0a0a008c0a8c0a5e0e5e5fe803000040"), bytes.fromhex("c1"), b""), (DeviceError,)),
    Target("own-processes", ("agent/daemon/costs.py", "agent/daemon/pausing.py",
           "agent/lib/proc_stat.py"), use_own_processes, ()),
    Target("keys", ("agent/commands/top/screen/key_input.py",), use_keys),
)  # fmt: skip
