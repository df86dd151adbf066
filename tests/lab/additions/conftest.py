"""A copy of the product, to which a test adds something, and the program that is run from it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.conftest import Daemons, RunningDaemon, library

__all__ = ["library"]

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("agent", "alerts", "dashboards", "exporters", "docs", "tests", "packaging", "pyproject.toml")


class ProductCopy:
    """The product in a folder of its own; it remembers which of its files were touched.

    What was compiled is copied along, and is good for a file that keeps its time: to compile the product anew for each
    program would be most of what these tests cost.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.touched: set[str] = set()
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("images"))
            else:
                shutil.copy(ROOT / part, root / part)

    def add(self, path: str, text: str) -> None:
        place = self.root / path
        assert not place.exists(), f"{path} is there already"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
        self.touched.add(path)

    def edit(self, path: str, before: str, text: str) -> None:
        """Put a text before another one, which must be there once."""
        place = self.root / path
        old = place.read_text()
        assert old.count(before) == 1, f"{path} has {before!r} {old.count(before)} times"
        place.write_text(old.replace(before, text + before))
        self.touched.add(path)

    def configure(self, text: str) -> tuple[str, str]:
        """Write a configuration, whose state is in the copy as well; the words that name it on the command line."""
        path = self.root / "c.yaml"
        path.write_text(f"state_dir: {self.root}/state\n{text}")
        return "--config.file", str(path)

    def environment(self, **more: str) -> dict[str, str]:
        """What programs run with: the copy goes before the product that is installed for development."""
        return {**os.environ, "PYTHONPATH": str(self.root), **more}

    def run(self, *arguments: str, **environment: str) -> str:
        """Run `coldplate`; what it printed. It must not fail."""
        return self.python("-m", "agent.cli", *arguments, **environment)

    def python(self, *arguments: str, **environment: str) -> str:
        """Run Python in the copy; what it printed. It must not fail."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self.environment(**environment),
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    def made(self, part: str) -> str:
        """A part of a document as tests/lab/generate makes it."""
        return self.python(
            "-c", f"from tests.lab.generate import {part.partition('.')[0]} as it; print(it.{part.partition('.')[2]})"
        )

    def touches_what_is_said_of(self, addition: str) -> None:
        """Hold what was touched against the table of docs/dev/architecture.md, both ways."""
        named = table()[addition]
        strange = [path for path in self.touched if not any(path == each or path.startswith(each) for each in named)]
        assert strange == [], f"the table does not name {strange}"
        idle = [each for each in named if not any(path == each or path.startswith(each) for path in self.touched)]
        assert idle == [], f"the table names {idle}, and nothing was to be done there"


def table() -> dict[str, list[str]]:
    """The table "Adding things" of docs/dev/architecture.md: what is to be touched for each addition."""
    text = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("\n## Adding things\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!to add|---)(.+?) \| (.+) \|$", section, re.MULTILINE)
    return {what: re.findall(r"`((?:agent|alerts|exporters|dashboards|docs)/[^`]*)`", touch) for what, touch in rows}


@pytest.fixture
def product(tmp_path: Path) -> ProductCopy:
    return ProductCopy(tmp_path / "product")


@pytest.fixture
def serve(product: ProductCopy, tmp_path: Path) -> Iterator[Callable[..., RunningDaemon]]:
    daemons = Daemons(tmp_path, product.root)
    yield lambda *words, **more: daemons(*words, environment=product.environment(**more), forked=False)
    daemons.stop()
