"""What the kernel and its drivers show: sysfs, procfs, the kernel log, answers of a controller and of the broker."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from agent.backends.host import HostBackend
from agent.backends.infiniband import InfinibandBackend
from agent.backends.jobs import JobsBackend
from agent.backends.jobs.job_files import TimedReader, read_file, read_minors
from agent.backends.kmsg import KmsgBackend
from agent.backends.optics import OpticsBackend
from agent.backends.own_processes import OwnProcesses
from agent.backends.power import PowerBackend
from agent.backends.power.ipmi import parse_power_reading
from agent.backends.protocol import AbsentError, BackendSample, DeviceError, GpuProcess
from agent.backends.topology import TopologyBackend
from agent.broker.answering import Broker
from agent.broker.asking import BrokerError
from agent.broker.questions import ask_variables, parse_answer
from agent.catalogue.xid_triage import XidClass, called, class_of, codes_of
from agent.commands.record.recorded_command import parse as parse_stat
from agent.commands.top.screen.key_input import KeyReader
from agent.daemon.pausing import boot_of
from agent.model import Gpu, GpuIdentity, Instant, Lane, Reading
from tests.lab.fuzz.target import Target, joined, unpack

NOW = Instant(100.0, 1.7e9)
LANES = (Lane.FAST, Lane.SLOW, Lane.COLD)


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


def use_infiniband(data: bytes, folder: Path) -> None:
    unpack(data, folder)
    backend = InfinibandBackend(folder)
    try:
        for lane in LANES:
            check_sample(backend.read(lane, NOW))
    finally:
        backend.close()


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
    backend = OpticsBackend(folder, Kernel)
    try:
        check_sample(backend.read(Lane.SLOW, NOW))
    finally:
        backend.close()


def use_topology(data: bytes, folder: Path) -> None:
    unpack(data, folder)
    gpu = GpuIdentity(Gpu("0", "GPU-1"), "0000:1b:00.0", "", "", ())
    backend = TopologyBackend(folder, lambda: [gpu])
    try:
        check_sample(backend.read(Lane.COLD, NOW))
    finally:
        backend.close()


def use_power(data: bytes, folder: Path) -> None:
    def absent() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/dev/ipmi0")

    unpack(data, folder)
    backend = PowerBackend(["hwmon", "rapl"], str(folder), ipmi=absent, spawn=lambda job: job())  # type: ignore[arg-type]  # it always raises
    try:
        for second in range(3):
            check_sample(backend.read(Lane.FAST, Instant(100.0 + second, 1.7e9 + second)))
    finally:
        backend.close()


def use_host(data: bytes, folder: Path) -> None:
    unpack(data, folder)
    before = psutil.PROCFS_PATH
    backend = HostBackend(str(folder), str(folder / "sys"))
    try:
        for second in range(2):
            check_sample(backend.read(Lane.SLOW, Instant(100.0 + second, 1.7e9)))
    finally:
        backend.close()
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
        trust_environment=("slurm",),
        read=_readable,
    )
    try:
        assert all(number >= 0 for number in read_minors(str(folder), TimedReader(read_file)))
        for second in (0.0, 20.0):
            check_sample(backend.read(Lane.SLOW, Instant(100.0 + second, 1.7e9 + second)))
    finally:
        backend.close()


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
            self.records = [line.replace(b"\x1f", b"\n") for line in data.split(b"\n") if line]

        def read(self) -> bytes:
            return self.records.pop(0) if self.records else b""

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
    found = parse_power_reading(data)
    assert 0 <= found.current < 65536


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


def nla(number: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), number) + content + bytes(-len(content) % 4)


def genetlink(kind: int, command: int, *attributes: bytes) -> bytes:
    payload = bytes((command, 1, 0, 0)) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(payload), kind, 0, 1, 0) + payload


U64 = struct.pack("=Q", 2**40)
U32 = struct.pack("=I", 5)
ETHTOOL = (
    genetlink(16, 1, nla(1, b"\x15\0"), nla(2, b"ethtool\0")),
    genetlink(
        21, 30, nla(1, nla(2, b"eth0\0")), nla(3, b"\1"), nla(4, b"\x32\0\0\0"),
        nla(5, nla(2, 3 * U64) + nla(3, U64) + nla(4, b"") + nla(5, nla(2, U32) + nla(3, U32) + nla(4, U64))),
    ),
    genetlink(21, 33, nla(4, nla(2, bytes(4)) + nla(4, nla(0, U64)))),
    genetlink(21, 6, nla(2, b"\1"), nla(7, U32)) + b"--" + struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -95),
    genetlink(21, 4, nla(5, U32)),
)  # fmt: skip
PORT = {
    "class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp\n",
    "class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    "class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
    "class/infiniband/mlx5_0/ports/1/lid": "0x1f\n",
    "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "18446744073709551615\n",
    "class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "N/A (no PMA)\n",
    "class/infiniband/mlx5_0/ports/1/counters/symbol_error": "3\n",
    "class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence": "12\n",
    "class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
    "class/infiniband/mlx5_0/board_id": "MT_0000000838\n",
    "class/infiniband/mlx5_0/node_guid": "946d:ae03:0012:3456\n",
}
METERS = {
    "class/hwmon/hwmon0/name": "power_meter\n",
    "class/hwmon/hwmon0/device/power1_average": "652100000\n",
    "class/hwmon/hwmon0/device/power1_oem_info": "Module Power Socket 0\n",
    "class/hwmon/hwmon1/name": "power_meter\n",
    "class/hwmon/hwmon1/power1_average": "N/A\n",
    "class/powercap/intel-rapl:0/name": "package-0\n",
    "class/powercap/intel-rapl:0/energy_uj": "262143328849\n",
    "class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850\n",
    "class/powercap/intel-rapl:0:0/name": "dram\n",
    "class/powercap/intel-rapl:0:0/energy_uj": "5\n",
    "class/powercap/intel-rapl:0:0/max_energy_range_uj": "0\n",
}
PROC = {
    "stat": "cpu  1000 200 3000 400000 5000 60 70 80 500 100\n"
    "cpu0 500 100 1500 200000 2500 30 35 40 250 50\nbtime 1700000000\n",
    "meminfo": "MemTotal: 2000000 kB\nMemFree: 500000 kB\nMemAvailable: 1500000 kB\nBuffers: 1 kB\nCached: 1 kB\n"
    "Active: 1 kB\nInactive: 1 kB\nShmem: 1 kB\nSlab: 1 kB\nSwapTotal: 9 kB\nSwapFree: 6 kB\n",
    "vmstat": "pswpin 0\npswpout 0\n",
    "loadavg": "1.50 2.25 3.75 2/300 1234\n",
    "diskstats": " 259 0 nvme0n1 100 0 2000 0 50 0 1000 0 0 0 0 0 0 0 0 0 0\n",
    "net/dev": "Inter-| Receive | Transmit\n face |bytes\n eth0: 1000 10 1 2 0 0 0 0 3000 30 3 4 0 0 0 0\n",
    "filesystems": "nodev\tproc\n\text4\n",
    "self/mounts": "/dev/nvme0n1p1 / ext4 rw 0 0\n/dev/x /a\\040b xfs rw 0 0\n",
    "pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=25\n",
    "sys/block/nvme0n1/device": "",
    "sys/class/net/eth0/device": "",
}
ZEROS = " ".join(["0"] * 13)
ENV = b"SLURM_JOB_ID=123\0SLURM_JOB_USER=alice\0SLURM_JOB_START_TIME=1700000000\0SLURM_JOB_NAME=a b\0"


def processes(*cgroups: str, env: bytes = ENV) -> bytes:
    files: dict[str, str | bytes] = {"stat": "cpu  1 2 3\nbtime 1700000000\n"}
    for pid, cgroup in enumerate(cgroups, 10):
        files |= {
            f"{pid}/stat": f"{pid} (py) x) S 1 {pid} {pid} 0 -1 {ZEROS} 500000 0 0\n",
            f"{pid}/status": "Name:\tpy\nUid:\t1000\t1000\t1000\t1000\n",
            f"{pid}/cgroup": cgroup,
            f"{pid}/environ": env,
        }
    files |= {
        "mapping/0": "123\n",
        "mapping/GPU-1": "456\n",
        "gpustat/x": "1\n",
        "driver/nvidia/gpus/0000:1b:00.0/information": "Model: H100\nGPU UUID: GPU-0\nDevice Minor: 0\n",
        "pods/ns_name_0f0e0d0c-0b0a-0908-0706-050403020100/c/0.log": "",
    }
    return joined(files)


HEX = "0123456789abcdef" * 4
JOBS = (
    processes(
        "0::/system.slice/slurmstepd.scope/job_123/step_0\n",
        f"0::/system.slice/docker-{HEX}.scope\n",
        "0::/user.slice/user-1000.slice/session-2.scope\n",
    ),
    processes(
        "4:memory:/slurm/uid_1000/job_9/step_batch\n3:cpu:/\n", "0::/htcondor/slot1_1@host\n", "0::/lsf/c/job.7[3].1\n",
        env=b"LSB_JOBID=7\0_CONDOR_SLOT=slot1_1\0_CONDOR_SCRATCH_DIR=/var/dir_99\0PBS_JOBID=5.srv\0",
    ),
    processes(
        f"0::/kubepods.slice/kubepods-pod0f0e0d0c_0b0a_0908_0706_050403020100.slice/cri-containerd-{HEX}.scope\n",
        "0::/pbspro.slice/pbspro-5.srv.slice\n", "0::/nomad.slice/share.slice/a-b-c-d-e.task.scope\n",
        env=b"NOMAD_ALLOC_ID=1\0RAY_JOB_ID=02\0JOB_ID=3\0SGE_TASK_ID=4\0OAR_JOB_ID=6\0FLUX_JOB_ID=f12\0",
    ),
)  # fmt: skip
TARGETS = (
    Target("infiniband", ("agent/backends/infiniband/sysfs_attribute.py", "agent/backends/sysfs.py"), use_infiniband,
           (joined(dict(PORT)),), (AbsentError, DeviceError), words=(b"4: ACTIVE", b"Gb/sec", b"ports/2/",
           b"counters/port_xmit_wait", b"0x", b"2.5 Gb/sec (1X SDR)", b"N/A")),
    Target("ethtool", ("agent/backends/optics/netlink.py", "agent/backends/optics/ethtool_requests.py",
           "agent/backends/optics/adapter_temperatures.py"), use_ethtool, (b"==".join(ETHTOOL),),
           (AbsentError, DeviceError), words=(b"--", b"==", b"eth0\0", struct.pack("=HH", 12, 2),
           struct.pack("=HH", 8, 4), U64, b"\xff" * 8)),
    Target("topology", ("agent/backends/topology.py",), use_topology,
           (joined({"class/infiniband/a/device/numa_node": "-1\n", "bus/pci/devices/0000:1b:00.0/numa_node": "0\n"}),),
           (AbsentError, DeviceError)),
    Target("power", ("agent/backends/power/hwmon.py", "agent/backends/power/rapl.py",
           "agent/backends/power/sysfs_numbers.py"), use_power, (joined(dict(METERS)),), (AbsentError, DeviceError),
           words=(b"power1_", b"package-1", b"psys", b"hwmon")),
    Target("host", ("agent/backends/host/kernel.py", "agent/backends/host/disks_and_network.py"), use_host,
           (joined(dict(PROC)),), (AbsentError, DeviceError),
           words=(b"\\040", b"\\777", b"kB", b"total=", b"cpu")),
    Target("jobs", ("agent/backends/jobs/process_table.py", "agent/backends/jobs/cgroup.py",
           "agent/backends/jobs/job_files.py", "agent/broker/answering.py", "agent/broker/questions.py"), use_jobs,
           JOBS,
           words=(b"SLURM_ARRAY_JOB_ID=5\0", b"SLURM_ARRAY_TASK_ID=6\0", b"SLURM_JOB_ID_HET_GROUP_1=123\0", b"Uid:",
           b"btime", b"job_", b".slice/", b".scope", b"0::", b"/user@1000.service/", b"LSB_JOBINDEX=3\0",
           b"slurmd.service/", b"\xc2\xb2")),
    Target("broker", ("agent/broker/questions.py", "agent/broker/answering.py"), use_broker,
           (ask_variables(10, 5) + b"\n\n" + ask_variables(10, 5) + b"\0\0\0\0SLURM_JOB_ID=1\0",
           b"pwr1" + bytes(12) + b"\n\n"), (ValueError,)),
    Target("kernel-log", ("agent/backends/kmsg.py", "agent/catalogue/xid_triage.py"),
           use_kmsg,
           (b"4,1,5000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off.\x1f S=p\n",
           b"4,1,5000000,-;NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x04a0c2 0x01)\n",
           b"4,1,5,-;NVRM: Xid (PCI:0018:01:00): 149, pid=7, name=x, NETIR_LINK_EVT  Fatal   XC0 (0x025525c6 0x0)\n",
           b"3,2,99999999999999999999,-,T1;NVRM: Xid (0000:1b:00): 31, x\n",
           b"6,3,7,c;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal\n",
           b"0,0,0,-;nvidia-nvswitch0: SXid (PCI:ffffffff:ff:ff.7): 999999999, Severity 1\n;;\n"),
           words=(b"NVRM: Xid (", b"): ", b"PCI:", b"\x1f", b"GPU-I:05", b"\xd9\xa3", b"Fatal", b"Nonfatal",
           b"TLW_RX_PIPE1", b"(0x")),
    Target("ipmi", ("agent/backends/power/ipmi.py",), use_ipmi,
           (bytes.fromhex("00dc8c0a0a008c0a8c0a5e0e5e5fe803000040"), bytes.fromhex("c1"), b""), (DeviceError,)),
    Target("own-processes", ("agent/backends/own_processes.py", "agent/daemon/pausing.py",
           "agent/commands/record/recorded_command.py"), use_own_processes,
           (joined({"10/stat": f"10 (cold) S 1 1 1 0 -1 {ZEROS} 5000 99 88 77\n",
                    "sys/kernel/random/boot_id": "0f0e0d0c-0b0a\n"}),)),
    Target("keys", ("agent/commands/top/screen/key_input.py",), use_keys, (b"q\x1b[A\x1b[1;5B\x1bOP\xc3\xa9\x1b",
           b"\x1b[<0;10;5M\x1b[200~x\x1b[201~")),
)  # fmt: skip
