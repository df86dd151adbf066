"""Writes the boards as JSON: `python -m dashboards.generate DIR`. The same boards give the same bytes.

It needs grafanalib, which users of the generated files do not.
"""

import sys
from pathlib import Path

from grafanalib._gen import loader

from dashboards.grafana_json import Json
from dashboards.relabel import GENERATED, as_text

BOARDS = Path(__file__).parent / "boards"


def boards() -> dict[str, Json]:
    """Return every board by its file's name, as grafanalib's own command reads it."""
    paths = sorted(BOARDS.glob("*.dashboard.py"))
    return {path.name.removesuffix(".dashboard.py"): loader(str(path)).to_json_data() for path in paths}


def main() -> None:
    """Write all boards into the given directory, or into the committed one."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED
    for name, board in boards().items():
        (out / f"{name}.json").write_text(as_text(board), encoding="utf-8")


if __name__ == "__main__":
    main()
