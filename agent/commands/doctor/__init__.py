"""`coldplate doctor`: explains the installation, line by line, with the command that fixes each finding."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.commandline import takes_colour
from agent.lib.wording import UserError
from agent.wiring.command_line import DEFAULT_FILE, add_config_file, add_roots, folder_of, read_file
from agent.wiring.http_access import add_http_config, given_login

if TYPE_CHECKING:
    from agent.commands.doctor.doctor_node import DoctorNode

HELP = "explain the installation: what works, what does not, and the fix"
DESCRIPTION = (
    "Check the installation: driver, permissions, schedulers, fabric, BMC, clock, port, configuration, rules, "
    "receivers, Prometheus, state, and what the unit's sandbox hides. Each line is OK, WARN or FAIL; a line that is "
    "not OK comes with the command or edit that fixes it. Run it as root to see everything. It changes nothing, starts "
    "no program and opens no device. Only with --bundle does it open the driver: it records the node, lists the "
    "bundle's files, and writes them into one archive for support; coldplate run --backend trace:FILE replays the "
    "driver calls in it."
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
    from agent.config.schema import Config
    from agent.lib.clock import clock

    config, problem = Config(), ""
    try:
        config = read_file(arguments)
    except UserError as error:
        problem = str(error)
    file = arguments.config_file or DEFAULT_FILE
    try:
        target = target_of_agent(config, arguments.url, given_login(arguments))
    except ValueError as error:
        raise UserError(f"--url: {error}") from error
    return DoctorNode(
        config, target, lambda: clock().mono, problem, arguments.sysfs, procfs=arguments.procfs, root=arguments.rootfs,
        folder=folder_of(arguments), file=file if file.exists() else None,
    )  # fmt: skip
