"""`coldplate render metrics` and `config-file`: single documents, to standard output or into a file."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from agent.lib.commandline import INVALID
from agent.lib.wording import UserError

DOCUMENTS = {
    "metrics": ("the reference of all metrics, in Markdown", "metrics.md"),
    "config-file": ("a configuration file with every default", "coldplate.yaml"),
}


def add_documents(kinds: Any) -> None:
    for name, (content, example) in DOCUMENTS.items():
        parser = kinds.add_parser(
            name,
            help=f"write {content}",
            description=f"Write {content}.",
            examples=((f"coldplate render {name} --output {example}", content),),
            exit_statuses={0: "written", 1: "standard output could not be written", **INVALID},
        )
        parser.add_argument("--output", type=Path, metavar="FILE", help="write to this file instead of standard output")
        parser.set_defaults(render=_render_document)


def _render_document(arguments: argparse.Namespace) -> int:
    """Write the text that is asked for. Raises UserError."""
    if arguments.what == "config-file":
        from agent.config.default_file import default_file as make
    else:
        from exporters.metrics_document import render as make
    text, out = make(), arguments.output
    if out is None:
        sys.stdout.write(text)
        return 0
    try:
        if not _may_replace(out, text):
            raise UserError(f"--output: {out} exists, and its content is not only this command's; name another file")
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output: {out}: {error.strerror}") from error
    return 0


def _may_replace(out: Path, text: str) -> bool:
    """Return True unless `out` is a foreign file, or a configuration file in which a key is set."""
    if not os.path.isfile(out):  # noqa: PTH113 - unlike Path's, it never raises
        return True
    lines = out.read_text(encoding="utf-8", errors="replace").splitlines()
    if not any(lines):
        return True
    is_same_document = lines[0] == text.partition("\n")[0]
    return is_same_document and (not _is_commented(text) or _is_commented("\n".join(lines)))


def _is_commented(text: str) -> bool:
    """Return True if a text in YAML sets no key."""
    values = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return all(not value or value.endswith(":") for value in values)
