"""`coldplate doctor`: explains the installation, line by line, with the command that fixes each finding."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agent.lib.commandline import takes_colour
from agent.lib.wording import UserError
from agent.wiring.command_line import DEFAULT_FILE, add_config_file, add_roots, folder_of, read_file
from agent.wiring.http_access import add_http_config, given_login

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.commands.doctor.agent_process import AgentProcess
    from agent.commands.doctor.doctor_node import DoctorNode
    from agent.config.schema import Config

HELP = "explain the installation: what works, what does not, and the fix"
DESCRIPTION = (
    "Check the installation: driver, permissions, schedulers, fabric, BMC, clock, port, configuration, rules, "
    "receivers, Prometheus, state, and what the unit's sandbox hides. Each line is OK, WARN or FAIL; a line that is "
    "not OK comes with the command or edit that fixes it. Beside a running agent it judges the configuration with "
    "which that agent was started, unless --config.file names another. Run it as root to see everything. It changes "
    "nothing, starts no program and opens no device. Only with --bundle does it open the driver: it records the node, "
    "lists the bundle's files, and writes them into one archive for support; coldplate run --backend trace:FILE "
    "replays the driver calls in it."
)
EXAMPLES = (
    ("coldplate doctor", "print a line for each check, and the fix of what is wrong"),
    ("coldplate doctor --json", "print the same as JSON"),
    (
        "coldplate doctor --bundle node7.tar.gz",
        "write a support bundle with findings, versions, driver calls and a recording of a minute",
    ),
    ("coldplate doctor --url http://127.0.0.1:9400", "check an agent that listens on another address than configured"),
)
EXIT_STATUSES = {
    0: "every line is OK or WARN; with --bundle: FILE was written",
    1: "at least one line is FAIL; a configuration that cannot be used is a FAIL",
    2: "the command line is invalid, or the bundle cannot be written; one line says why",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_file(parser)
    parser.add_argument("--json", action="store_true", help="print findings as JSON")
    parser.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE.tar.gz",
        help="write findings, configuration, versions, the agent's snapshot, a recording and a trace of driver calls, "
        "with pseudonyms and without secrets, into a new file",
    )
    parser.add_argument(
        "--bundle-seconds",
        type=int,
        metavar="N",
        help="length of the recording in the bundle, in seconds, 1 to 600 (default 60)",
    )
    parser.add_argument(
        "--url", metavar="URL", help="URL of the running agent (default: this node, first address of web.listen)"
    )
    add_http_config(parser)
    add_roots(parser)
    parser.add_argument(
        "--path.rootfs", dest="rootfs", type=Path, default=Path("/"), metavar="DIR",
        help="root of /dev, /etc, /run and /var (default %(default)s)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Examine the node and print the findings. Raises UserError."""
    import logging

    from agent.commands.doctor import doctor_finding
    from agent.commands.doctor.check_runner import examine
    from agent.commands.doctor.doctor_finding import DoctorVerdict

    logging.getLogger("coldplate").addHandler(logging.NullHandler())  # what it would say is in the findings
    node = _node(arguments)
    if arguments.bundle is not None:
        from agent.commands.doctor.support_bundle import write_bundle

        if arguments.json:
            raise UserError("--json: cannot be used with --bundle, which holds both forms; leave out one")
        seconds = 60 if arguments.bundle_seconds is None else arguments.bundle_seconds
        write_bundle(arguments.bundle, seconds, node, arguments)
        return 0
    if arguments.bundle_seconds is not None:
        raise UserError("--bundle-seconds: needs --bundle")
    waiting = sys.stderr is not None and sys.stderr.isatty() and not arguments.json
    if waiting:
        print("looking at this node ...", end="", file=sys.stderr, flush=True)
    findings = examine(node)
    if waiting:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if arguments.json:
        print(doctor_finding.document(findings))
    else:
        for line in doctor_finding.lines(findings, takes_colour(sys.stdout)):
            print(line)
    return 1 if doctor_finding.worst(findings) is DoctorVerdict.FAIL else 0


def _node(arguments: argparse.Namespace) -> DoctorNode:
    """Return the node with its configuration; what is wrong with the file is a finding, and no reason to stop."""
    from agent.commands.doctor.doctor_node import DoctorNode, target_of_agent
    from agent.lib.clock import clock

    started = _started_with(arguments)
    try:
        target = target_of_agent(started.config, arguments.url, given_login(arguments))
    except ValueError as error:
        raise UserError(f"--url: {error}") from error
    file = started.arguments.config_file or DEFAULT_FILE
    return DoctorNode(
        started.config, target, lambda: clock().mono, started.problem, arguments.sysfs, procfs=arguments.procfs,
        root=arguments.rootfs, folder=folder_of(started.arguments), file=file if file.exists() else None,
        process=started.process, config_doubt=started.config_doubt,
    )  # fmt: skip


class _StartedWith(NamedTuple):
    """The configuration to judge: `problem` says why it cannot be used, `doubt` why it may not be the agent's."""

    arguments: argparse.Namespace
    config: Config
    problem: str
    process: AgentProcess | None = None
    config_doubt: str = ""


def _started_with(arguments: argparse.Namespace) -> _StartedWith:
    """Return the configuration of the file that is given; without one, that of the agent that runs here, if it does."""
    from urllib.parse import urlsplit

    from agent.commands.doctor.agent_process import UnknownArgumentsError, arguments_of, find_agent_process
    from agent.wiring.command_line import read_config
    from agent.wiring.identity import own_agent

    own = _StartedWith(arguments, *_configuration(arguments, read_file))
    if arguments.config_file is not None:
        return own
    try:
        port = urlsplit(arguments.url or own_agent(own.config).urls[0]).port or 0
    except ValueError:
        return own
    process = find_agent_process(arguments.procfs, port)
    if process is None:
        return own
    try:
        theirs = arguments_of(process, arguments.procfs)
    except UnknownArgumentsError as error:
        return own._replace(process=process, config_doubt=str(error))
    return _StartedWith(theirs, *_configuration(theirs, read_config), process)


def _configuration(arguments: argparse.Namespace, read: Callable[[argparse.Namespace], Config]) -> tuple[Config, str]:
    """Return what `read` makes of the options, or the defaults with the reason why it cannot be used."""
    from agent.config.schema import Config

    try:
        return read(arguments), ""
    except UserError as error:
        return Config(), str(error)
