"""`coldplate render dashboards`: the Grafana dashboards as files, with a site's own names.

It needs neither Grafana nor grafanalib: the dashboards are part of the package.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from agent.config.schema import ConfigError
from agent.lib.durable import replace_file

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*|")


def add_options(render: argparse.ArgumentParser) -> None:
    """Adds the options that only dashboards have to the `render` command."""
    group = render.add_argument_group("with dashboards, for sites that relabel")
    group.add_argument("--datasource", metavar="UID", help="default data source of the dashboards")
    group.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="OURS=YOURS",
        help="rename a label, such as instance=host; OURS is cluster, instance, rack or job_id; may be repeated",
    )
    group.add_argument("--prefix", metavar="PREFIX", help="prefix of metric names instead of coldplate_")


def used(arguments: argparse.Namespace) -> bool:
    """Whether an option was given that only dashboards have."""
    return bool(arguments.datasource is not None or arguments.label or arguments.prefix is not None)


def render(arguments: argparse.Namespace) -> int:
    """Writes the dashboards into the directory and prints their names. The exit status. Raises ConfigError."""
    from dashboards.relabel import PREFIX, Relabelling, dashboards

    out: Path | None = arguments.out
    if out is None:
        raise ConfigError("render dashboards: give the directory for the files with --out DIR")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out: {out} is not a directory; name one (it is created if missing)")
    prefix = PREFIX if arguments.prefix is None else arguments.prefix
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"--prefix: {prefix!r} cannot start a metric name; use letters, digits and _")
    try:
        for name, text in dashboards(Relabelling(_labels(arguments.label), prefix, arguments.datasource)):
            replace_file(out / name, text.encode())
            print(out / name)
    except OSError as error:
        raise ConfigError(f"--out: {error.filename or out}: {error.strerror}") from error
    return 0


def _labels(given: list[str]) -> dict[str, str]:
    from dashboards.relabel import LABELS

    labels: dict[str, str] = {}
    for each in given:
        ours, equals, yours = each.partition("=")
        if not equals or not _LABEL.fullmatch(yours):
            raise ConfigError(f"--label: {each!r} must be OURS=YOURS with a label name, such as instance=host")
        if ours not in LABELS:
            raise ConfigError(f"--label: {ours!r} cannot be renamed; use one of {', '.join(LABELS)}")
        if labels.setdefault(ours, yours) != yours:
            raise ConfigError(f"--label: {ours} has two new names, {labels[ours]} and {yours}; give one")
    return labels
