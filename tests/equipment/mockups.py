"""`make mockups DIR=...`: what the agent reads from Redfish mockups, such as DMTF's public ones (DSP2043).

A mockup is a folder of documents, `index.json` in a folder for each resource. Each one below DIR is served by a real
HTTP server on loopback, and read as a node's controller and as equipment that serves a rack. Nothing of them is kept.
Exit status 1 if DIR has none.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.backends.equipment.equipment_backend import EquipmentReader, NodeCoolingReader
from agent.backends.equipment.rack_equipment_backend import RackEquipmentReader
from agent.backends.protocol import AbsentError, DeviceError
from agent.backends.redfish_service import RedfishService
from agent.lib.http_target import HttpTarget
from tests.screen.agents import Answer, Answers, serving

ROOT = "/redfish/v1"


def answers_of(mockup: Path) -> Answers:
    """What a server of the mockup answers: a document, or that there is none."""

    def answer(path: str) -> Answer:
        document = (mockup / path.removeprefix(ROOT).strip("/") / "index.json").resolve()
        known = path.startswith(ROOT) and document.is_relative_to(mockup.resolve()) and document.is_file()
        return (200, document.read_bytes()) if known else (404, b"{}")

    return answer


def lines_of(mockup: Path) -> Iterator[str]:
    """What is read from a mockup, a line for each detector and each value."""
    with serving(answers_of(mockup)) as place:
        target = HttpTarget(f"http://{place}", timeout=5.0)
        yield from read_by(NodeCoolingReader(target, None, time.monotonic))
        service = RedfishService(target, 10.0, time.monotonic)
        yield from read_by(RackEquipmentReader(mockup.name, service, time.monotonic))


def read_by(reader: EquipmentReader) -> Iterator[str]:
    try:
        seen = reader.read_parts()
    except (AbsentError, DeviceError) as error:
        yield f"{reader.name}: {error}"
        return
    finally:
        reader.close()
    for (row, names), state in seen.states.items():
        yield f"{row.name} {'/'.join(names)}: {state}"
    for (row, names), value in seen.values.items():
        yield f"{row.name} {'/'.join(names)}: {value:g}"
    yield from (problem for _, problem in seen.problems)


def main(arguments: Sequence[str]) -> int:
    """Read every mockup below the folder that is named."""
    folder = Path(arguments[0]) if arguments and arguments[0] else None
    found = sorted({path.parent.parent for path in folder.rglob("Chassis/index.json")}) if folder else []
    if not found:
        print(
            f"no mockup with a Chassis below {folder}; make mockups DIR=FOLDER names a folder of them", file=sys.stderr
        )
        return 1
    for mockup in found:
        print(mockup.name)
        for line in lines_of(mockup):
            print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
