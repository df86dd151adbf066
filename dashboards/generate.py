"""Writes the boards as JSON: `python -m dashboards.generate DIR`. The same boards give the same bytes.

It needs grafanalib, which users of the generated files do not.
"""

import importlib.util
import sys
from pathlib import Path

from dashboards.grafana_json import Json
from dashboards.relabel import GENERATED, as_text

BOARDS = Path(__file__).parent / "boards"


def boards() -> dict[str, Json]:
    """Return every board by its file's name, as grafanalib's own command would read it."""
    made = {}
    for path in sorted(BOARDS.glob("*.dashboard.py")):
        spec = importlib.util.spec_from_file_location("dashboard", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made[path.name.removesuffix(".dashboard.py")] = module.dashboard.to_json_data()
    return made


def main() -> None:
    """Write all boards into the given directory, or into the committed one."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED
    for name, board in boards().items():
        (out / f"{name}.json").write_text(as_text(board), encoding="utf-8")


if __name__ == "__main__":
    main()
