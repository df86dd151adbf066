"""Packs a program, as packaging/program.sh makes it, into one file that Python runs: `single_file.py TREE MACHINE OUT`.

Standard library alone. The same tree and SOURCE_DATE_EPOCH give the same bytes.
"""

import os
import sys
import time
import zipfile
from pathlib import Path

MAIN = Path(__file__).with_name("self_unpacking.py")
SHEBANG = b"#!/usr/bin/env python3\n"
LINKS = ("bin/python", "pyvenv.cfg")
"""Made where the file is unpacked: they name an interpreter."""


def pack(tree: Path, machine: str, out: Path) -> None:
    """Write `out`, whole or not at all."""
    moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    held = {"__main__.py": MAIN.read_bytes(), "machine": machine.encode()}
    files = (path for path in tree.rglob("*") if path.is_file() and str(path.relative_to(tree)) not in LINKS)
    held |= {f"program/{path.relative_to(tree)}": path.read_bytes() for path in files}
    part = out.with_name(f"{out.name}.new")
    with part.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, content in sorted(held.items()):
                about = zipfile.ZipInfo(name, moment)
                about.compress_type = zipfile.ZIP_DEFLATED
                about.external_attr = 0o100644 << 16
                archive.writestr(about, content)
    part.chmod(0o755)
    part.rename(out)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
