"""What modules of ports have in their memory, which their makers wrote."""

from contextlib import closing
from pathlib import Path

from agent.backends.optics import OpticsBackend
from agent.model import Instant, Lane
from tests.lab.fuzz.target import Target
from tests.lab.fuzz.targets.kernel import check_sample
from tests.optics.conftest import StandInKernel
from tests.optics.stand_in_module import LOWER, StandInModule, copper_osfp, copper_qsfp, diagnosed_osfp, osfp, qsfp28

HALVES = (
    (0, LOWER), (0, 0), (0, 1), (0, 2), (0, 3), (0, 0x11), (1, 0x11),
    (0, 0x2F), *((0, page) for page in range(0x20, 0x28)),
)  # fmt: skip
"""Bank and page of each 128 bytes of an input, in order. What is behind its end is not there."""


def dump(module: StandInModule) -> bytes:
    return b"".join(bytes(module.halves.get(half, bytes(128))) for half in HALVES)


def use_module(data: bytes, folder: Path) -> None:
    """It is read twice: the second time as one that is known."""
    module = StandInModule()
    module.halves = {half: bytearray(data[at * 128 :][:128]) for at, half in enumerate(HALVES) if data[at * 128 :]}
    (folder / "class" / "net" / "eth0" / "device").mkdir(parents=True)
    (folder / "class" / "net" / "eth0" / "type").write_text("1\n")
    kernel = StandInKernel()
    kernel.modules["eth0"] = module
    with closing(OpticsBackend(folder, kernel.connect)) as backend:
        for seconds in (0.0, 60.0):
            sample = backend.read(Lane.COLD, Instant(100.0 + seconds, 1.7e9))
            check_sample(sample)
            assert sample.readings or sample.gaps
            assert len(module.transfers) <= 18
            for page, offset, length, _ in module.transfers:
                assert page != 0x11 or offset >= 154, "flags of lanes"
                assert page != 0x2F or (offset, length) == (128, 1), "what freezes diagnostics"
                assert offset >= 128 or page == 0
                assert length <= 128
            module.transfers.clear()


TARGETS = (
    Target("modules", ("agent/backends/optics/modules/sff8636.py", "agent/backends/optics/modules/cmis.py",
           "agent/backends/optics/port_modules.py", "agent/backends/optics/modules/module_types.py"),
           use_module, tuple(dump(each) for each in (qsfp28(), osfp(), osfp(banks=1), copper_qsfp(), copper_osfp(),
           diagnosed_osfp(), diagnosed_osfp(4))), words=(b"\xff" * 16, bytes(16))),
)  # fmt: skip
