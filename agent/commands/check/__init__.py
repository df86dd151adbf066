"""`coldplate check`: whether the node is fit for a job, as a Nagios plugin says it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.commandline import OutputError, Parser, abandon_output, warn
from agent.lib.wording import UserError, meant
from agent.wiring.command_line import add_sources, read_config, read_options
from agent.wiring.http_access import add_http_config, given_login, refuse_beside_url

if TYPE_CHECKING:
    from agent.commands.check.node_check import CheckEvidence
    from agent.health.expectations import Expected

HELP = "judge whether the node is fit for a job"
DESCRIPTION = (
    "Read the devices once, without the agent, and compare the node with what is expected of its model. If an agent "
    "runs, its firing alerts count as well. Exit statuses are those of a Nagios plugin; docs/terminal.md has every "
    "check, and examples for Slurm and node-problem-detector."
)
EXAMPLES = (
    ("coldplate check", "check whether this node is fit for a job"),
    (
        "coldplate check --skip alerts,infiniband-rate --timeout 5s",
        "skip two checks, and allow more time for the others",
    ),
    ("coldplate check --url node7", "check another node, by the last sample of its agent"),
    (
        "coldplate check --learn /etc/coldplate/site.yaml",
        "save the present state of a healthy node as the expected one",
    ),
    ("coldplate check --scenario nvlink-down --verbose", "show the verdict on a fault, without a GPU"),
)
EXIT_STATUSES = {
    0: "ok: everything that could be checked is as it should be",
    1: "warning: usable, but not as it should be",
    2: "critical: not fit for a job; something is broken, missing or hangs",
    3: "unknown: no verdict is possible; also an invalid command line or configuration",
}
UNKNOWN = 3
AGENT_WORDS = ("auto", "required", "none")
ASIDE = ("driver", "xids", "agent", "alerts")
"""Checks whose answers are not in the sample of the devices."""


def add_arguments(parser: Parser) -> None:
    parser.misused = UNKNOWN
    add_sources(parser, "error")
    add = parser.add_argument
    add(
        "--expect",
        metavar="NAME|FILE",
        help="expectations: shipped ones by name, a file, auto or none (default: "
        "expectations in the configuration, else auto: by the GPUs)",
    )
    add(
        "--learn",
        nargs="?",
        const="-",
        metavar="FILE",
        help="do not check: write what this node has now, as expectations, to FILE (default stdout)",
    )
    add("--only", action="append", default=[], metavar="NAME[,NAME]", help="run only these checks")
    add("--skip", action="append", default=[], metavar="NAME[,NAME]", help="skip these checks")
    add(
        "--agent",
        choices=AGENT_WORDS,
        help="whether the firing alerts of the running agent count: auto if one "
        "answers, required, or none (default auto; none with --scenario)",
    )
    add(
        "--url",
        metavar="URL",
        help="check another node by the last sample of its agent: host, host:port or URL; "
        "skips xids, because the kernel log is not read",
    )
    add_http_config(parser)
    add("--timeout", default="2s", metavar="DURATION", help="time limit of the whole command (default %(default)s)")
    add(
        "--at",
        metavar="DURATION",
        help="with --scenario: how long it has been running (default: until all of its faults show)",
    )
    add("--verbose", action="store_true", help="print every check, not only those that are not ok")
    add("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print the judgement; the exit status. Whatever prevents one is unknown, and never a warning or worse."""
    status = UNKNOWN
    try:
        status = _check(arguments)
        sys.stdout.flush()
    except (UserError, OutputError) as error:
        status = UNKNOWN
        warn("check", str(error))
        abandon_output()
    except BrokenPipeError:
        abandon_output()  # the reader has seen enough; the status is still the judgement
    except Exception:
        import logging

        logging.getLogger("coldplate.check").exception("check failed")
        print("COLDPLATE UNKNOWN - check failed by a defect of its own; see standard error")
    return status


def _check(arguments: argparse.Namespace) -> int:
    from agent.commands.check import node_check
    from agent.config.quantities import duration_between
    from agent.config.schema import parse_value
    from agent.lib import logs
    from agent.wiring.agent_client import target_of
    from agent.wiring.sources import age_scenario
    from agent.wiring.start_checks import load_expected

    refuse_beside_url(arguments, ("scenario", "backend", "learn", "at", "agent"), "judges what an agent reports")
    logs.set_up(arguments.log_level, arguments.log_format, sys.stderr)
    config = read_config(arguments)
    at = arguments.at and parse_value("--at", duration_between, arguments.at, "0s", "1000d")
    options = age_scenario(read_options(arguments), config, at)
    names = _chosen(arguments.only, arguments.skip)
    source = arguments.expect or config.expectations
    expected = load_expected(source, Path.cwd() if arguments.expect else options.folder)
    timeout = parse_value("--timeout", duration_between, arguments.timeout, "200ms", "10m")
    agent = arguments.agent or ("none" if arguments.scenario else "auto")
    until = node_check.deadline(timeout)
    if arguments.url is not None:
        target = parse_value("--url", target_of, arguments.url, given_login(arguments))
        evidence = node_check.query_node(target, until)
        names -= {"xids"} if evidence.devices else {"xids", "driver"}
        return _report(evidence, names, expected, arguments, is_required=True)
    if arguments.learn is not None:
        return _write_expectations(node_check.collect_evidence(config, options, until, "none"), arguments.learn)
    if config.backends.devices == "none":
        names -= {"driver", "xids"}
    elif config.backends.devices in ("replay", "trace"):
        names -= {"xids"}  # the kernel log is this node's
    evidence = node_check.collect_evidence(config, options, until, agent, given_login(arguments))
    return _report(evidence, names, expected, arguments, is_required=agent == "required")


def _report(
    evidence: CheckEvidence,
    names: frozenset[str],
    expected: Expected | None,
    arguments: argparse.Namespace,
    *,
    is_required: bool,
) -> int:
    """Print the result of the checks with these names; the exit status."""
    from agent.commands.check import check_output, node_check

    result = node_check.evaluate(evidence, names, expected, needs_agent=is_required)
    sys.stdout.write(
        check_output.as_json(result) if arguments.json else check_output.as_text(result, arguments.verbose)
    )
    return check_output.status_of(result)


def _write_expectations(evidence: CheckEvidence, target: str) -> int:
    from agent.commands.check.node_check import learn_expectations
    from agent.health.examination import format_expectations

    text = format_expectations(learn_expectations(evidence))
    if target == "-":
        sys.stdout.write(text)
        return 0
    try:
        with Path(target).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"--learn: {target} exists; name another file, or remove this one") from None
    except OSError as error:
        raise UserError(f"--learn: {target}: {error.strerror}") from error
    print(f"wrote {target}; read it, and use it with --expect or as expectations in the configuration")
    return 0


def _chosen(only: list[str], skip: list[str]) -> frozenset[str]:
    """Return the names of the checks to make. Raises UserError."""
    from agent.health.examination import CHECKS

    all_names = [*(check.name for check in CHECKS), *ASIDE]
    named = {}
    for option, texts in (("--only", only), ("--skip", skip)):
        named[option] = {name.strip() for text in texts for name in text.split(",") if name.strip()}
        for name in sorted(named[option] - set(all_names)):
            raise UserError(f"{option}: there is no check {name!r}{meant(name, all_names)}")
    return frozenset((named["--only"] or set(all_names)) - named["--skip"])
