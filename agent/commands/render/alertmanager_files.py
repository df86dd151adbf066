"""`coldplate render alertmanager`: what an Alertmanager needs for coldplate's alerts, to run with or to merge.

A site has an Alertmanager, and its configuration is one file without includes. So routes, inhibition rules and
receivers are written apart, each as the list that goes into the site's file: they select only coldplate's alerts, by
name, and their receivers have names of their own. A file that has other content already is never overwritten.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from agent.commands.render.output_directory import add_directory, write_files
from agent.lib.commandline import INVALID
from agent.lib.wording import UserError

MARK = "Written by coldplate render alertmanager"
WHOLE, TEMPLATE = "alertmanager.yml", "coldplate.tmpl"
ROUTES, INHIBITION, RECEIVERS = "coldplate-routes.yml", "coldplate-inhibit-rules.yml", "coldplate-receivers.yml"
REMARKS = {
    WHOLE: "a whole configuration, for an Alertmanager that has no other alerts",
    ROUTES: "append to route.routes, before a route that takes everything",
    INHIBITION: "append to inhibit_rules",
    RECEIVERS: "append to receivers, with your own in place of the examples",
    TEMPLATE: "name it in templates: texts for pagers and channels",
}
_SECTION = re.compile(r"(?ms)^(\w+):\n(.*?)(?=^(?:# [^\n]*\n)*\w+:\n|\Z)")
_RECEIVER = re.compile(r"(?m)^( *receiver: |- name: )(?=\S)")
_TARGETS = re.compile(r"(?m)^(  target_matchers: \[)(?!'alertname=)(?!.*'alertname=)")


def add_alertmanager(kinds: Any) -> None:
    parser = kinds.add_parser(
        "alertmanager",
        help="write routes, inhibition rules and receivers for an Alertmanager",
        description="Write routes, inhibition rules and receivers for an Alertmanager: a whole configuration, and its "
        "parts to merge into one that a site has. A file that was edited or is foreign is never overwritten.",
        examples=(("coldplate render alertmanager --output alertmanager", "the files, and what each is for"),),
        exit_statuses={0: "written", **INVALID},
    )
    parser.set_defaults(render=render_alertmanager)
    add_directory(parser)


def render_alertmanager(arguments: argparse.Namespace) -> int:
    """Write the files into the directory, print what each is for, and return the exit status. Raises UserError."""
    out, files = arguments.output, alertmanager_files()

    def is_unchanged(path: Path) -> bool:
        """Return False for a file that a person has put receivers into: it is a beginning, not a copy."""
        return path.read_bytes() == files[path.name].encode()

    write_files(out, files, is_unchanged, lambda name: f": {REMARKS[name]}")
    return 0


def alertmanager_files() -> dict[str, str]:
    """Return the text of each file by its name. Raises UserError if a shipped file is missing."""
    from alerts import packs

    try:
        whole = packs.ALERTMANAGER.read_text(encoding="utf-8")
        template = packs.MESSAGES.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; install coldplate again") from error
    sections = {match[1]: match[2] for match in _SECTION.finditer(whole)}
    is_ours = f"'alertname=~\"{'|'.join(packs.runbooks())}\"'"
    routes = f"- matchers: [{is_ours}]\n{sections['route']}"
    inhibition = _TARGETS.sub(lambda match: f"{match[1]}{is_ours}, ", sections["inhibit_rules"])
    return {
        WHOLE: f"# {MARK}.\n{whole}",
        ROUTES: _part(ROUTES, _RECEIVER.sub(r"\1coldplate-", routes)),
        INHIBITION: _part(INHIBITION, inhibition),
        RECEIVERS: _part(RECEIVERS, _RECEIVER.sub(r"\1coldplate-", sections["receivers"])),
        TEMPLATE: f"{{{{- /* {MARK}. */ -}}}}\n{template}",
    }


def _part(name: str, text: str) -> str:
    return f"# {MARK}: {REMARKS[name]}.\n{text.rstrip()}\n"
