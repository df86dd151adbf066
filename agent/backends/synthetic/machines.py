"""The machines that a scenario can be played on, as data: one entry is one machine.

The numbers are typical of the product, not a specification of it: the scenarios need only that
watts, degrees and bytes are in the right proportion.
"""

from msgspec import Struct
from msgspec.structs import replace

MIB = 2.0**20
MHZ = 1e6
GIGABIT = 1e9 / 8


class RackPlant(Struct, frozen=True):
    """What serves the rack of a machine: one coolant distribution unit, and power shelves of one input each."""

    nodes: int  # like this one
    pumps: tuple[str, ...]  # any one of them is enough
    leak_detectors: tuple[str, ...]  # of the unit
    rated_flow: float  # liters/s of coolant to the rack
    feeds: tuple[str, ...]  # shelves hang on them in turn; those of one carry the rack
    shelves: int
    supplies: int  # of each shelf
    supply_rating: float  # watts
    input_volts: float  # between two lines
    further_power: float  # watts that the rack draws besides its nodes: switches


class MachineType(Struct, frozen=True):
    """One machine. Bandwidths are in one direction."""

    name: str
    model: str
    architecture: str
    capability: str  # CUDA compute capability
    slots: tuple[str, ...]  # PCI bus ids; one GPU each
    memory: float  # bytes, all of it
    reserved: float  # bytes that the driver keeps
    power_limit: float  # watts
    power_idle: float  # watts, no process on the GPU
    clock_sm: float  # hertz, highest
    clock_idle: float
    clock_memory: float
    clock_video: float
    slot_warmth: tuple[float, ...]  # celsius above the coolest slot, at full power
    nvlinks: int = 0
    nvlink_speed: float = 0.0  # bytes/s of one link
    nvlink_version: int = 0  # 4 up to Hopper (its error counters too), 5 for Blackwell
    pcie_generation: int = 5
    pcie_width: int = 16
    pcie_speed: float = 55e9
    gpm: bool = True  # SM, tensor and DRAM activity without a profiler: Hopper and newer
    power_is_mean: bool = True  # A100 (GA100): instantaneous
    module_power: float = 0.0  # watts of the CPU side of a Grace module; 0: no such module
    ports: tuple[str, ...] = ()  # InfiniBand devices, port 1 each
    port_rate: float = 400 * GIGABIT
    optics: tuple[str, ...] = ()  # Ethernet interfaces, each with an optical module of four lanes
    optic_rate: float = 400 * GIGABIT
    leak_detectors: tuple[str, ...] = ()
    connectors: tuple[str, ...] = ()  # of coolant
    rated_flow: float = 0.0  # liters/s of all connectors together
    rack: RackPlant | None = None  # None: the rack has no equipment of its own
    cluster: str = ""  # NVLink domain; empty: no fabric
    inlet: float = 28.0  # celsius of the air or water that cools
    full_load_rise: float = 30.0  # celsius of the coolest slot above the inlet at the power limit
    slowdown: float = 90.0  # celsius at which the hardware slows the GPU down
    sw_slowdown: float = 87.0  # celsius at which the driver does
    base_power: float = 1600.0  # watts of everything except the GPUs
    power_overhead: float = 1.1  # losses and fans, in proportion to the GPUs

    @property
    def gpus(self) -> int:
        return len(self.slots)


STANDALONE = "00000000-0000-0000-0000-000000000000"
"""The cluster uuid that a stand-alone NVSwitch machine shows."""

_BACK_TO_FRONT = (0.0, 1.5, 0.5, 2.0, 12.0, 14.0, 13.0, 11.5)  # measured shape: bimodal, 14 degrees wide
_DGX_SLOTS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")

_A100_BUSES = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")
_GB200_BUSES = ("0008:01", "0009:01", "0018:01", "0019:01")
_L40S_BUSES = ("16", "27", "38", "5a", "98", "a8", "c8", "d8")

_H100 = MachineType(
    name="dgx-h100", model="NVIDIA H100 80GB HBM3", architecture="hopper", capability="9.0",
    slots=tuple(f"0000:{bus}:00.0" for bus in _DGX_SLOTS), slot_warmth=_BACK_TO_FRONT,
    memory=81_559 * MIB, reserved=551 * MIB,
    power_limit=700.0, power_idle=75.0,
    clock_sm=1980 * MHZ, clock_idle=345 * MHZ, clock_memory=2619 * MHZ, clock_video=1545 * MHZ,
    nvlinks=18, nvlink_speed=26.562e9, nvlink_version=4, cluster=STANDALONE,
    ports=tuple(f"mlx5_{rail}" for rail in range(8)),
)  # fmt: skip

_GB200 = MachineType(
    name="gb200-tray", model="NVIDIA GB200", architecture="blackwell", capability="10.0",
    slots=tuple(f"{bus}:00.0" for bus in _GB200_BUSES), slot_warmth=(0.0, 2.0, 3.0, 5.0),
    memory=189_471 * MIB, reserved=800 * MIB,
    power_limit=1200.0, power_idle=150.0, module_power=110.0, base_power=350.0, power_overhead=1.05,
    clock_sm=2062 * MHZ, clock_idle=120 * MHZ, clock_memory=3996 * MHZ, clock_video=1965 * MHZ,
    nvlinks=18, nvlink_speed=53.125e9, nvlink_version=5, cluster="9a6f1c52-3d0b-4e8e-9a41-5f27c0d1be64",
    ports=("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"),
    inlet=25.0, full_load_rise=25.0,
)  # fmt: skip

_NVL72_TRAY = replace(
    _GB200,
    name="nvl72-tray",
    optics=("enp3s0f0np0", "enp3s0f1np1"),
    leak_detectors=("Chassis_0_LeakDetector_0_ColdPlate", "Chassis_0_LeakDetector_0_Manifold"),
    connectors=("Tray",),
    rated_flow=0.17,
)

_NVL72 = RackPlant(
    nodes=18,
    pumps=("PumpA", "PumpB"), leak_detectors=("Cabinet", "DripTray"), rated_flow=3.4,
    feeds=("A", "B"), shelves=8, supplies=6, supply_rating=5_500.0, input_volts=415.0, further_power=12_000.0,
)  # fmt: skip
"""Eight shelves of 33 kW, as NVIDIA's DGX GB200 guide has them."""

_ALL = (
    _H100,
    replace(_H100, name="dgx-h100-optics", optics=("enp41s0f0np0", "enp170s0f0np0")),
    replace(_H100, name="dgx-h200", model="NVIDIA H200", memory=143_771 * MIB, clock_memory=3201 * MHZ),
    replace(
        _H100, name="dgx-a100", model="NVIDIA A100-SXM4-80GB", architecture="ampere", capability="8.0",
        slots=tuple(f"0000:{bus}:00.0" for bus in _A100_BUSES),
        memory=81_920 * MIB, reserved=663 * MIB,
        power_limit=400.0, power_idle=55.0, base_power=1200.0, power_is_mean=False,
        clock_sm=1410 * MHZ, clock_idle=210 * MHZ, clock_memory=1593 * MHZ, clock_video=1275 * MHZ,
        nvlinks=12, nvlink_speed=25e9, pcie_generation=4, pcie_speed=26e9, gpm=False,
        port_rate=200 * GIGABIT,
    ),
    replace(
        _H100, name="dgx-b200", model="NVIDIA B200", architecture="blackwell", capability="10.0",
        memory=183_359 * MIB, reserved=700 * MIB,
        power_limit=1000.0, power_idle=140.0, base_power=2000.0,
        clock_sm=1965 * MHZ, clock_idle=120 * MHZ, clock_memory=3996 * MHZ,
        nvlink_speed=53.125e9, nvlink_version=5,
    ),
    _GB200,
    _NVL72_TRAY,
    replace(_NVL72_TRAY, name="nvl72-rack", rack=_NVL72),
    MachineType(
        name="l40s-pcie", model="NVIDIA L40S", architecture="ada", capability="8.9",
        slots=tuple(f"0000:{bus}:00.0" for bus in _L40S_BUSES), slot_warmth=(0.0, 2.0, 4.0, 5.0, 1.0, 3.0, 6.0, 4.0),
        memory=46_068 * MIB, reserved=630 * MIB,
        power_limit=350.0, power_idle=35.0, base_power=700.0,
        clock_sm=2520 * MHZ, clock_idle=210 * MHZ, clock_memory=9001 * MHZ, clock_video=1965 * MHZ,
        pcie_generation=4, pcie_speed=26e9, gpm=False,
        ports=("mlx5_0", "mlx5_1"), port_rate=200 * GIGABIT,
    ),
)  # fmt: skip

TOPOLOGIES: dict[str, MachineType] = {machine.name: machine for machine in _ALL}
"""Every machine by its name."""
