"""What is fuzzed: a parser of what others wrote, behind its public seam, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CORPUS = Path(__file__).with_name("corpus")
PART = b"=== "
"""Begins the line that names a file, in an input that holds several."""


@dataclass(frozen=True)
class Target:
    """One parser, or several that read the same thing.

    `use` is given the input and an empty folder, and asserts what holds for every input. `refusals` are the exceptions
    with which it may reject one; with `named`, their text must name the folder's file. `parsers` are the modules whose
    reading is tried here. `seconds` of CPU and `mebibytes` of Python objects bound one input.
    """

    name: str
    parsers: tuple[str, ...]
    use: Callable[[bytes, Path], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = ()
    words: tuple[bytes, ...] = ()
    files: tuple[str, ...] = ()
    """Files of the repository that are seeds as well, as patterns below its root."""
    named: bool = False
    shown: bool = True
    """Whether the words of a refusal go to a terminal as they are; what quotes them is another target else."""
    seconds: float = 2.0
    mebibytes: int = 64

    def corpus(self) -> Iterator[tuple[str, bytes]]:
        """Every seed and every kept input, with a name for it, in a fixed order."""
        for number, seed in enumerate(self.seeds):
            yield f"seed {number}", seed
        for pattern in self.files:
            for path in sorted(ROOT.glob(pattern)):
                yield str(path.relative_to(ROOT)), path.read_bytes()
        for path in sorted((CORPUS / self.name).glob("*")):
            yield str(path.relative_to(ROOT)), path.read_bytes()


def unpack(data: bytes, folder: Path) -> None:
    """Write the files of an input below a folder: each begins with a line `=== path`, as in `joined`."""
    for part in (b"\n" + data).split(b"\n" + PART)[1:257]:
        name, _, content = part.partition(b"\n")
        steps = [step[:200] for step in name.decode("utf-8", "replace").replace("\0", "").split("/")]
        path = folder.joinpath(*(step for step in steps[:16] if step.strip(".")))
        if path == folder:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError:
            continue  # a file where another input part has a folder


def joined(files: dict[str, str | bytes]) -> bytes:
    """An input that holds several files."""
    return b"".join(
        PART + name.encode() + b"\n" + (content.encode() if isinstance(content, str) else content) + b"\n"
        for name, content in files.items()
    )
