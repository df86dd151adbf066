"""What is fuzzed: a parser of what others wrote, behind its public seam, and what it may answer."""

import ast
import logging
import shutil
import signal
import threading
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[3]
CORPUS = Path(__file__).with_name("corpus")
PART = b"=== "
"""Begins the line that names a file, in an input that holds several."""

LONGEST_LINE = 2500
"""Most characters of a line of a refusal: it is read in a terminal and in a log."""
LONGEST_WORD = 40
MEBIBYTE = 2**20


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
    seeds: tuple[bytes, ...] = ()
    """Inputs that are made by code."""
    refusals: tuple[type[Exception], ...] = ()
    words: tuple[bytes, ...] = ()
    """What a parser compares with, and its source does not hold as a literal."""
    files: tuple[str, ...] = ()
    """Files of the repository that are seeds as well, as patterns below its root."""
    named: bool = False
    shown: bool = True
    """Whether the words of a refusal go to a terminal as they are; what quotes them is another target else."""
    seconds: float = 2.0
    mebibytes: int = 64

    def dictionary(self) -> tuple[bytes, ...]:
        """All words: these, and the short literals and field names in the source of the parsers."""
        found = set[bytes]()
        for parser in self.parsers:
            for node in ast.walk(ast.parse((ROOT / parser).read_text(encoding="utf-8"))):
                match node:
                    case ast.Constant(value=bytes(word)):
                        found.add(word)
                    case ast.Constant(value=str(word)) | ast.AnnAssign(target=ast.Name(id=word)):
                        found.add(word.encode("utf-8", "surrogatepass"))
        # What has two spaces is a sentence.
        return (*self.words, *sorted(each for each in found if 0 < len(each) < LONGEST_WORD and each.count(b" ") < 2))

    def corpus(self) -> Iterator[tuple[str, bytes]]:
        """Every seed and every kept input, with a name for it, in a fixed order."""
        for number, seed in enumerate(self.seeds):
            yield f"seed {number}", seed
        for pattern in self.files:
            for path in sorted(ROOT.glob(pattern)):
                yield str(path.relative_to(ROOT)), path.read_bytes()
        for path in sorted((CORPUS / self.name).glob("*")):
            yield str(path.relative_to(ROOT)), path.read_bytes()


def parts_of(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file of an input: each begins with a line `=== path`, as in `joined`."""
    for part in (b"\n" + data).split(b"\n" + PART)[1:257]:
        name, _, content = part.partition(b"\n")
        yield name.decode("utf-8", "replace"), content


def unpack(data: bytes, folder: Path) -> None:
    """Write the files of an input below a folder."""
    for name, content in parts_of(data):
        steps = [step[:200] for step in name.replace("\0", "").split("/")]
        path = folder.joinpath(*(step for step in steps[:16] if step.strip(".")))
        if path == folder:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError:
            continue  # a file where another input part has a folder


def joined(files: dict[str, str | bytes]) -> bytes:
    return b"".join(
        PART + name.encode() + b"\n" + (content.encode() if isinstance(content, str) else content) + b"\n"
        for name, content in files.items()
    )


class TooSlowError(BaseException):
    """An input took more CPU time than its target allows; no product code may catch it."""


@dataclass(frozen=True)
class Crash:
    """What went wrong, and the place that tells one crash from another."""

    what: str
    where: str
    data: bytes
    trace: str = ""


@contextmanager
def cpu_bound(seconds: float) -> Iterator[None]:
    """Raise TooSlowError where the block takes more CPU time. In the main thread only."""

    def over(number: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"took more than {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def attempt(target: Target, data: bytes, folder: Path, run: Callable[[], object] | None = None) -> Crash | None:
    """Use the input; None where it was taken, or refused as the target says. `run` replaces the call of `use`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    logging.disable(logging.CRITICAL)
    measured = tracemalloc.is_tracing()
    if measured:
        tracemalloc.reset_peak()
        held = tracemalloc.get_traced_memory()[0]
    fallen: list[BaseException] = []
    hook = threading.excepthook
    threading.excepthook = lambda told: fallen.append(told.exc_value or told.exc_type())
    try:
        with cpu_bound(target.seconds):
            (run or (lambda: target.use(data, folder)))()
    except target.refusals as error:
        problem = fault_of_refusal(str(error), folder if target.named else None) if target.shown else ""
        if problem:
            return Crash(f"{type(error).__name__}: {problem}", _place(error), data, _trace(error))
    except (Exception, TooSlowError, SystemExit) as error:
        return Crash(f"{type(error).__name__}: {str(error)[:300]}", _place(error), data, _trace(error))
    finally:
        threading.excepthook = hook
        logging.disable(logging.NOTSET)
    for each in fallen:
        return Crash(f"ended a thread: {type(each).__name__}: {str(each)[:300]}", _place(each), data, _trace(each))
    if measured and (taken := tracemalloc.get_traced_memory()[1] - held) > target.mebibytes * MEBIBYTE:
        return Crash(f"took {taken / MEBIBYTE:.0f} MiB; the bound is {target.mebibytes}", "memory", data)
    return None


def fault_of_refusal(text: str, names: Path | None = None) -> str:
    """What is wrong with the words of a refusal; "" if nothing is."""
    if not text.strip():
        return "a refusal without words"
    if not all(line.isprintable() for line in text.split("\n")):
        return f"a refusal that no terminal should get: {text[:200]!a}"
    if any(len(line) > LONGEST_LINE for line in text.split("\n")):
        return f"a refusal with a line of more than {LONGEST_LINE} characters: {text[:100]!a}"
    if names is not None and str(names) not in text:
        return f"a refusal that does not name the file: {text[:200]!a}"
    return ""


def _place(error: BaseException) -> str:
    """The innermost line of ours, or of the target where it is an assertion of it."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(str(ROOT))]
    own = [each for each in frames if "/.venv/" not in each.filename]
    return f"{Path(own[-1].filename).relative_to(ROOT)}:{own[-1].lineno}" if own else "?"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-8))[-3000:]
