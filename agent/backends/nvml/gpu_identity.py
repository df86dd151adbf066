"""The identity of a GPU: read once when the source is opened, and kept when the GPU itself is gone."""

from __future__ import annotations

from agent.backends.nvml.driver import Driver, GpuHandle
from agent.backends.nvml.return_codes import DEVICE_CODES, DriverError, escalate_source
from agent.model import Gpu, GpuIdentity

ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
"""NVML_DEVICE_ARCH_* (nvidia-ml-py 13)."""


def slot_of(bus_id: str) -> str:
    """The PCI bus id as Linux writes it: NVML's `00000000:1B:00.0` is `0000:1b:00.0`."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def identify(driver: Driver, index: int) -> tuple[object, GpuIdentity]:
    """The handle and the identity of the GPU at `index`.

    Raises DriverError if the GPU cannot be distinguished from others (no handle or no UUID) or is lost before all is
    read, and SourceError if the driver is gone. Any other fact that cannot be read is empty.
    """
    try:
        handle = driver.call("nvmlDeviceGetHandleByIndex_v2", index)
        device = GpuHandle(driver, handle)
        uuid = str(device.call("nvmlDeviceGetUUID"))
    except DriverError as error:
        escalate_source(error)
        raise
    bus_id = _fact(device, "nvmlDeviceGetPciInfo_v3")
    identity = GpuIdentity(
        gpu=Gpu(str(index), uuid),
        slot=slot_of(bus_id) if bus_id else "",
        serial=_fact(device, "nvmlDeviceGetSerial"),
        model=_fact(device, "nvmlDeviceGetName"),
        facts=(
            ("driver_version", _system_fact(driver, "nvmlSystemGetDriverVersion")),
            ("vbios", _fact(device, "nvmlDeviceGetVbiosVersion")),
            ("architecture", _architecture(device)),
            ("compute_capability", _capability(device)),
            ("minor", _fact(device, "nvmlDeviceGetMinorNumber")),
            ("numa_node", _fact(device, "nvmlDeviceGetNumaNodeId")),
            ("board_part", _fact(device, "nvmlDeviceGetBoardPartNumber")),
        ),
    )
    return _lasting_handle(driver, uuid, handle), identity


def _lasting_handle(driver: Driver, uuid: str, handle: object) -> object:
    """The handle by UUID: indexes change when GPUs are lost or hidden, the UUID does not."""
    try:
        return driver.call("nvmlDeviceGetHandleByUUID", uuid)
    except DriverError as error:
        escalate_source(error)
        return handle


def _fact(device: GpuHandle, name: str) -> str:
    try:
        answer = device.call(name)
    except DriverError as error:
        _hold(error)
        return ""
    return "" if answer in (-1, 2**32 - 1) else str(answer)


def _system_fact(driver: Driver, name: str) -> str:
    try:
        return str(driver.call(name))
    except DriverError as error:
        escalate_source(error)
        return ""


def _architecture(device: GpuHandle) -> str:
    code = _fact(device, "nvmlDeviceGetArchitecture")
    return ARCHITECTURES.get(int(code), code) if code else ""


def _capability(device: GpuHandle) -> str:
    try:
        major, minor = device.call("nvmlDeviceGetCudaComputeCapability")
    except DriverError as error:
        _hold(error)
        return ""
    return f"{major}.{minor}"


def _hold(error: DriverError) -> None:
    """Accept that the GPU does not offer a fact, which is then empty; raise if asking again may give it."""
    escalate_source(error)
    if error.code in DEVICE_CODES:
        raise error
