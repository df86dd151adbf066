"""Compiles the stand-in for libnvidia-ml.so.1; see `fake_nvml.c` for what it does and how it is told to."""

import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
CONTROL = "COLDPLATE_FAKE_NVML"
"""The environment variable that names the control file."""


def compiler() -> str | None:
    """The C compiler to use, if there is one."""
    return shutil.which(os.environ.get("CC", "cc"))


def compile_library(source: Path, path: Path, *options: str) -> Path:
    """Compile a shared library. Raises FileNotFoundError without a compiler."""
    found = compiler()
    if found is None:
        raise FileNotFoundError("no C compiler: install one (apt-get install gcc), or set CC")
    strict = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
    subprocess.run([found, *strict, "-o", str(path), str(source), *options], check=True)
    return path


def build(directory: Path) -> Path:
    """Compile the library into `directory` and give its path; put the directory on LD_LIBRARY_PATH."""
    options = ("-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}", "-lm", "-lpthread")
    return compile_library(SOURCE, directory / LIBRARY, *options)


def command(control: Path, *lines: str) -> None:
    """Give the library these commands in place of the ones before; at once, so that none is seen half-written."""
    fresh = control.with_suffix(".new")
    fresh.write_text("".join(f"{line}\n" for line in lines))
    fresh.replace(control)
