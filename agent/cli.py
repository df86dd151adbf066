"""The command line: `coldplate run`, `once`, `render`, `rules`."""

from __future__ import annotations

import argparse
import io
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from agent import __version__, dashboards_cli, logs, rules_cli
from agent.commandline import OutputError, Parser, abandon_output, guard_output
from agent.config import Config, ConfigError, load
from agent.configvalues import DEVICES, base_url, check_url_path
from agent.textfile import descriptor_of
from agent.wording import one_line

EXIT_USAGE = 2
DEFAULT_FILE = Path("/etc/coldplate/coldplate.yaml")


def _parser() -> Parser:
    parser = Parser(
        prog="coldplate",
        description="Samples the GPUs, links, fabric ports and power of one node, and serves Prometheus.",
        epilog="Without a configuration file every key has its default. Exit status: 0 well, 1 failed, "
        "2 mistake in the command line or the configuration.",
    )
    version = f"coldplate {__version__} (Python {platform.python_version()}, {platform.machine()})"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="sample the node and serve it until told to stop",
        description=(
            "Sample the node and serve it until told to stop. SIGHUP reads the configuration again, SIGTERM ends."
        ),
    )
    _add_sources(run, "info")
    run.add_argument(
        "--web.listen-address",
        dest="listen",
        action="append",
        metavar="ADDRESS",
        help="address to serve on, host:port or :port; may be repeated (default :19400)",
    )
    run.add_argument(
        "--web.telemetry-path", dest="telemetry_path", metavar="PATH", help="path of the metrics (default /metrics)"
    )
    run.add_argument(
        "--web.enable-lifecycle", dest="lifecycle", action="store_true", default=None, help="allow POST /-/reload"
    )

    once = commands.add_parser(
        "once",
        help="take one sample and print it",
        description="Take one sample of every lane and print it; takes a little over one fast interval. "
        "Exit status: 1 where --backend nvml finds no GPU.",
    )
    _add_sources(once, "warn")
    once.add_argument(
        "--format", choices=("text", "openmetrics", "json"), default="text", help="what to print (default %(default)s)"
    )
    once.add_argument(
        "--textfile",
        type=Path,
        metavar="FILE",
        help="write the sample to FILE for node_exporter's textfile collector, atomically",
    )

    render = commands.add_parser(
        "render", help="write a document or rule files that are generated from what the agent knows"
    )
    render.add_argument(
        "what",
        choices=("metrics", "scenarios", "rules", "dashboards"),
        help="metrics: the reference of all metrics; scenarios: the synthetic devices; both as Markdown; "
        "rules: the rule files as the configuration has them, for a Prometheus server; dashboards: for Grafana",
    )
    render.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="write to this file instead of standard output; with rules and dashboards: into this directory, "
        "which must be given",
    )
    render.add_argument(
        "--runbook-base",
        metavar="URL",
        help="with rules: the runbooks of the pack are below this address (default rules.runbook_base)",
    )
    _add_config_file(render)
    dashboards_cli.add_options(render)
    rules_cli.add_parser(commands)
    return parser


def _add_config_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help=f"configuration file (default {DEFAULT_FILE} if it is there; every key has a default)",
    )


def _add_sources(parser: argparse.ArgumentParser, level: str) -> None:
    _add_config_file(parser)
    parser.add_argument(
        "--backend",
        choices=DEVICES,
        metavar="NAME",
        help=f"where GPUs are read: {', '.join(DEVICES)} (default auto: nvml where it is)",
    )
    parser.add_argument(
        "--scenario", metavar="NAME|FILE", help="scenario of the synthetic devices; implies --backend synthetic"
    )
    parser.add_argument(
        "--path.sysfs",
        dest="sysfs",
        type=Path,
        default=Path("/sys"),
        metavar="DIR",
        help="root of sysfs (default %(default)s)",
    )
    parser.add_argument(
        "--path.procfs",
        dest="procfs",
        type=Path,
        default=Path("/proc"),
        metavar="DIR",
        help="root of procfs (default %(default)s)",
    )
    parser.add_argument(
        "--log.level",
        dest="log_level",
        choices=logs.LEVELS,
        default=level,
        help="least severe log lines to print (default %(default)s)",
    )
    parser.add_argument(
        "--log.format",
        dest="log_format",
        choices=logs.FORMATS,
        default="logfmt",
        help="format of log lines (default %(default)s)",
    )


def _load(arguments: argparse.Namespace, *, again: bool = False) -> Config:
    """The file's configuration; `again` when it was read before, which a pipe cannot be. Raises ConfigError."""
    file, must_exist = arguments.config_file or DEFAULT_FILE, arguments.config_file is not None
    return load(file, must_exist, handed=not again)


def _folder(arguments: argparse.Namespace) -> Path:
    """Where relative paths of the configuration begin: beside it, or here if it comes through a pipe."""
    file = arguments.config_file or DEFAULT_FILE
    return Path.cwd() if descriptor_of(file) is not None else file.absolute().parent


def _read_config(arguments: argparse.Namespace, *, again: bool = False) -> Config:
    """The file's configuration with the command line laid over it. Raises ConfigError."""
    config = _load(arguments, again=again)
    backends, web = config.backends, config.web
    devices = arguments.backend or ("synthetic" if arguments.scenario else None)
    if devices is not None:
        scenario = backends.scenario if devices == "synthetic" else None
        backends = msgspec.structs.replace(backends, devices=devices, scenario=scenario)
    if arguments.scenario is not None:
        if backends.devices != "synthetic":
            raise ConfigError(f"--scenario needs --backend synthetic, not {backends.devices}")
        backends = msgspec.structs.replace(backends, scenario=arguments.scenario)
    given = {
        "listen": tuple(arguments.listen) if getattr(arguments, "listen", None) else None,
        "telemetry_path": getattr(arguments, "telemetry_path", None),
        "enable_lifecycle": getattr(arguments, "lifecycle", None),
    }
    web = msgspec.structs.replace(web, **{key: value for key, value in given.items() if value is not None})
    try:
        check_url_path(web.telemetry_path)
    except ValueError as error:
        raise ConfigError(f"--web.telemetry-path: {error}") from error
    for name, root in (("--path.sysfs", arguments.sysfs), ("--path.procfs", arguments.procfs)):
        if not os.path.isdir(root):  # noqa: PTH112 unlike Path's it never raises
            raise ConfigError(f"{name}: {one_line(str(root))} is no directory")
    return msgspec.structs.replace(config, backends=backends, web=web)


def _run(arguments: argparse.Namespace) -> int:
    from agent import daemon
    from agent.assembly import Options, scenario_of

    first = [_read_config(arguments)]
    options = Options(arguments.sysfs, arguments.procfs, arguments.log_level, arguments.log_format)
    options = replace(options, scenario_name=scenario_of(first[0]), folder=_folder(arguments))
    return daemon.run(options, lambda: first.pop() if first else _read_config(arguments, again=True))


def _once(arguments: argparse.Namespace) -> int:
    from agent.assembly import Options, scenario_of
    from agent.once import sample_once

    config = _read_config(arguments)
    options = Options(arguments.sysfs, arguments.procfs, arguments.log_level, arguments.log_format, scenario_of(config))
    logs.set_up(arguments.log_level, arguments.log_format, sys.stderr)
    return sample_once(config, options, arguments.format, arguments.textfile)


def _render_rules(arguments: argparse.Namespace) -> int:
    from agent.alerting import load_files

    if arguments.out is None:
        raise ConfigError("render rules: give the directory for the files with --out DIR")
    config = _load(arguments)
    if arguments.runbook_base is not None:
        try:
            base_url(arguments.runbook_base)
        except ValueError as error:
            raise ConfigError(f"--runbook-base: {error}") from error
        rules = msgspec.structs.replace(config.rules, runbook_base=arguments.runbook_base)
        config = msgspec.structs.replace(config, rules=rules)
    return rules_cli.render(load_files(config, _folder(arguments)), arguments.out)


def _render(arguments: argparse.Namespace) -> int:
    if arguments.what != "rules" and arguments.runbook_base is not None:
        raise ConfigError(f"render {arguments.what}: --runbook-base is for rules alone")
    if arguments.what == "dashboards":
        return dashboards_cli.render(arguments)
    if dashboards_cli.used(arguments):
        raise ConfigError(f"render {arguments.what}: --datasource, --label and --prefix are for dashboards alone")
    if arguments.what == "rules":
        return _render_rules(arguments)
    text = _document(arguments.what)
    if arguments.out is None:
        sys.stdout.write(text)
        return 0
    try:
        arguments.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {arguments.out}: {error.strerror}") from error
    return 0


def _document(what: str) -> str:
    if what == "scenarios":
        from agent.backends.synthetic import document

        return document.render()
    from exporters.document import render

    return render()


COMMANDS = {"run": _run, "once": _once, "render": _render, "rules": rules_cli.run}


def _obey(arguments: Sequence[str] | None) -> int:
    try:
        parsed = _parser().parse_args(arguments)
    except SystemExit:  # behind --help and --version, too, something is still to be written
        _flush()
        raise
    status = COMMANDS[parsed.command](parsed)
    _flush()
    return status


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status. A user's mistake is one line on standard error and status 2."""
    from exporters.listen import BindError

    try:
        return _obey(arguments)
    except (ConfigError, BindError) as error:
        print(f"coldplate: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OutputError as error:
        print(f"coldplate: {error}", file=sys.stderr)
        abandon_output()
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone: nobody to tell
        return 1
    except KeyboardInterrupt:
        return 130


def entry() -> None:
    """The console script."""
    guard_output()
    if isinstance(sys.stderr, io.TextIOWrapper):  # not so where it was closed
        sys.stderr.reconfigure(errors="backslashreplace")  # names of files may be no text at all
    sys.exit(main())


if __name__ == "__main__":
    entry()
