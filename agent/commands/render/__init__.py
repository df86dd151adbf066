"""`coldplate render`: generates documents, rule files and dashboards."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from agent.commands.render import dashboards
from agent.config import reference
from agent.config.schema import ConfigError
from agent.config.texts import base_url
from agent.lib.textfile import CONFIGURATION, ReadError, read_text
from agent.wiring.command_line import add_config_file, folder_of, read_file

HELP = "write generated documents, rule files or dashboards"
DESCRIPTION = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to write, and where."""
    parser.add_argument(
        "what",
        choices=("metrics", "scenarios", "configuration", "config-file", "rules", "dashboards"),
        help="metrics, scenarios, configuration: the reference of metrics, scenarios or configuration keys, in "
        "Markdown; config-file: a configuration file with every default; "
        "rules: the rule files with the configuration's changes, for a Prometheus server; dashboards: for Grafana",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="write to this file instead of standard output; with rules and dashboards: write into this directory "
        "(required)",
    )
    parser.add_argument(
        "--runbook-base",
        metavar="URL",
        help="with rules: base URL of the pack's runbooks (default rules.runbook_base)",
    )
    add_config_file(parser)
    dashboards.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write what is asked for. Raises ConfigError."""
    if arguments.what != "rules" and arguments.runbook_base is not None:
        raise ConfigError(f"render {arguments.what}: --runbook-base applies to rules only")
    if arguments.what == "dashboards":
        return dashboards.render(arguments)
    if dashboards.used(arguments):
        raise ConfigError(f"render {arguments.what}: --datasource, --label and --prefix apply to dashboards only")
    if arguments.what == "rules":
        return _render_rules(arguments)
    return _write(arguments.what, arguments.out)


def _write(what: str, out: Path | None) -> int:
    if out is None:
        sys.stdout.write(_document(what))
        return 0
    try:
        text = reference.splice(read_text(out, CONFIGURATION)) if what == "configuration" else _document(what)
        out.write_text(text, encoding="utf-8")
    except ReadError as error:
        raise ConfigError(f"--out: {error}") from error
    except ValueError as error:
        raise ConfigError(f"--out: {out}: {error}") from error
    except OSError as error:
        raise ConfigError(f"--out: {out}: {error.strerror}") from error
    return 0


def _render_rules(arguments: argparse.Namespace) -> int:
    from agent.commands.render import rules
    from agent.wiring.alerting import load_files

    if arguments.out is None:
        raise ConfigError("render rules: give the directory for the files with --out DIR")
    config = read_file(arguments)
    if arguments.runbook_base is not None:
        try:
            base_url(arguments.runbook_base)
        except ValueError as error:
            raise ConfigError(f"--runbook-base: {error}") from error
        changed = msgspec.structs.replace(config.rules, runbook_base=arguments.runbook_base)
        config = msgspec.structs.replace(config, rules=changed)
    return rules.render(load_files(config, folder_of(arguments)), arguments.out)


def _document(what: str) -> str:
    if what == "configuration":
        return reference.table()
    if what == "config-file":
        return reference.default_file()
    if what == "scenarios":
        from agent.backends.synthetic import scenario_document

        return scenario_document.render()
    from exporters.metrics_document import render

    return render()
