"""Compiles `fake_firmware.c`, which makes reads of chosen files hang or fail and steps the clock, and tells it when."""

from collections.abc import Mapping
from pathlib import Path

from tests.fakes.nvml.build import compile_library

SOURCE = Path(__file__).with_name("fake_firmware.c")
LIST = "COLDPLATE_FAKE_FIRMWARE"


class FakeFirmware:
    """Firmware whose files hang or fail, and a clock that is wrong, when told so.

    Its `environment` is for the program that reads them.

    Raises FileNotFoundError where there is no C compiler.
    """

    def __init__(self, directory: Path) -> None:
        library = compile_library(SOURCE, directory / "fake_firmware.so", "-lpthread")
        self._list = directory / "firmware-control"
        self.command()
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), LIST: str(self._list)}

    def command(self, *lines: str) -> None:
        """Give these commands in place of the ones before."""
        fresh = self._list.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self._list)
