"""`coldplate simulate`: a whole site of synthetic nodes, in one process and on one port."""

import argparse
from pathlib import Path

from agent.config.words import PROFILES
from agent.lib.commandline import INVALID, add_log_options
from agent.wiring.command_line import add_listening

HELP = "serve a whole site of synthetic nodes on one port"
DESCRIPTION = (
    "Simulate racks of nodes whose jobs span nodes, and serve the metrics of each node below its name: for dashboards, "
    "demonstrations, drills, and for sizing what scrapes them. FILE describes the site, or the options do, in fewer "
    "words. Prometheus finds the nodes by http_sd_configs at /sd. Nodes are sampled when they are scraped."
)
EXAMPLES = (
    ("coldplate simulate --nodes 16 --nodes-per-job 8", "16 nodes in racks of 4, and two jobs of 64 GPUs each"),
    ("coldplate simulate --nodes 500 --scenario healthy-training=9 --scenario idle=1", "500 nodes, a tenth idle"),
    ("coldplate simulate --fault straggler@node3/5,at=2m --nodes-per-job 8", "a slow GPU, for which a job of 8 waits"),
    ("coldplate simulate --fault power-loss@r2,at=2m,duration=5m", "a rack without power: a storm of alerts"),
    ("coldplate simulate site.yaml --web.listen-address :19500", "a site from a file, for other machines, too"),
)
EXIT_STATUSES = {0: "stopped by SIGTERM or SIGINT, or after --duration", **INVALID}

ADDRESS = "127.0.0.1:19500"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="description of the site, in YAML")
    _add_site(parser)
    parser.add_argument("--seed", type=_whole, metavar="N", help="seed of all that is random (default 1)")
    parser.add_argument(
        "--interval",
        metavar="TIME",
        default="15s",
        help="longest time between two samples of a node that is scraped, from 1s (default %(default)s)",
    )
    parser.add_argument(
        "--metrics.profile",
        dest="profile",
        choices=PROFILES,
        default="default",
        help="how much of the catalogue each node shows (default %(default)s)",
    )
    parser.add_argument("--duration", metavar="TIME", help="end after this long, such as 10m")
    add_listening(parser, ADDRESS, " none")
    add_log_options(parser, "info")


def _add_site(parser: argparse.ArgumentParser) -> None:
    site = parser.add_argument_group("the site, without FILE")
    site.add_argument("--nodes", type=_count, metavar="N", help="number of nodes (default 8)")
    site.add_argument("--nodes-per-rack", type=_count, metavar="N", help="nodes of each rack (default 4)")
    site.add_argument("--topology", metavar="NAME", help="machine of all nodes (default dgx-h100)")
    site.add_argument(
        "--scenario",
        action="append",
        metavar="NAME|FILE[=WEIGHT]",
        help="what nodes play; repeated, nodes are dealt one of them each, by weight (default healthy-training)",
    )
    site.add_argument("--nodes-per-job", type=_count, metavar="N", help="nodes that a scenario's jobs span (default 1)")
    site.add_argument("--rack-budget", metavar="POWER", help="power budget of each rack, such as 40.8kW")
    site.add_argument("--cluster", metavar="NAME", help="label cluster of all nodes (default sim)")
    site.add_argument(
        "--fault",
        action="append",
        metavar="KIND@PLACE[/PART][,KEY=VALUE...]",
        help="a fault at a node or rack, on a GPU or port, such as straggler@node17/3,at=2m; may be repeated",
    )


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number")
    return int(text)


def _count(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped. Raises UserError."""
    from agent.commands.simulate.site_service import serve

    return serve(arguments)
