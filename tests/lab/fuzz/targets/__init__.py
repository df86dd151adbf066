"""The targets, by name. A file of this folder has those of one kind of input, in its TARGETS."""

from importlib import import_module
from pathlib import Path

from tests.lab.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))
    for target in import_module(f"tests.lab.fuzz.targets.{path.stem}").TARGETS
}
