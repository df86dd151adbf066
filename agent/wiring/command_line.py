"""Options of the command line that complement or override the configuration file."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.words import DEVICES
from agent.lib.commandline import add_log_options
from agent.lib.wording import UserError

if TYPE_CHECKING:  # every command's options are made for the help: what reads a file is imported when one is read
    from agent.config.schema import Config, ReplayConfig, Section

DEFAULT_FILE = Path("/etc/coldplate/coldplate.yaml")
DEFAULT_SCENARIO = "healthy-training"


REPLAY, TRACE = "replay:", "trace:"
"""The prefixes of the name of a recording, and of a trace of driver calls."""


class Families(tuple[str, ...]):
    """The values of --backend: the device sources, and recordings and traces by their names."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        is_file = isinstance(word, str) and word.startswith((REPLAY, TRACE)) and word not in (REPLAY, TRACE)
        return is_file or super().__contains__(word)


@dataclass(frozen=True, slots=True)
class CommandLineOptions:
    """The options that only the command line has."""

    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    log_level: str = "info"
    log_format: str = "logfmt"
    folder: Path = Path()
    """Where relative paths of the configuration begin: the folder of its file."""
    scenario_age: float = 0.0
    """Seconds for which the scenario of synthetic devices has been going on when they are opened."""


NODES_FILE = f"{DEFAULT_FILE} if it exists"


def add_config_file(parser: argparse.ArgumentParser, default: str = NODES_FILE) -> None:
    parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help=f"configuration file (default {default}; every key has a default)",
    )


def add_roots(parser: argparse.ArgumentParser) -> None:
    for name in ("sysfs", "procfs"):
        parser.add_argument(
            f"--path.{name}",
            dest=name,
            type=Path,
            default=Path("/sys" if name == "sysfs" else "/proc"),
            metavar="DIR",
            help=f"root of {name} (default %(default)s)",
        )


def add_sources(parser: argparse.ArgumentParser, level: str, config_file: str = NODES_FILE) -> None:
    """Add the options of commands that read devices; `level` is the least severe log line that they print."""
    add_config_file(parser, config_file)
    parser.add_argument(
        "--backend",
        choices=Families(DEVICES),
        metavar="NAME",
        help=f"source of GPU readings: {', '.join(DEVICES)}, replay:FILE[#NODE] for a recording, or "
        "trace:FILE for a bundle or trace of doctor (default auto: nvml if a driver is installed)",
    )
    parser.add_argument(
        "--scenario", metavar="NAME|FILE", help="scenario of the synthetic devices; implies --backend synthetic"
    )
    parser.add_argument(
        "--replay.speed", dest="replay_speed", metavar="N", help="replay a recording N times as fast (default 1)"
    )
    parser.add_argument(
        "--replay.loop", dest="replay_loop", action="store_true", default=None, help="restart the recording at its end"
    )
    add_roots(parser)
    add_log_options(parser, level)


def add_listening(parser: argparse.ArgumentParser, address: str, config_file: str) -> None:
    """Add where to serve and the web configuration file; the words say what counts without these options."""
    parser.add_argument(
        "--web.listen-address",
        dest="listen",
        action="append",
        metavar="ADDRESS",
        help=f"address to serve on, host:port or :port; may be repeated (default {address})",
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        metavar="FILE",
        help=f"file with TLS and passwords, in the format of Prometheus's exporters (default{config_file})",
    )


def read_file(arguments: argparse.Namespace, *, again: bool = False) -> Config:
    """Return the file's configuration; `again` when it was read before, which a pipe cannot be. Raises ConfigError.

    The path of its web configuration file is absolute: many commands ask there how the agent is reached.
    """
    import msgspec

    from agent.config.reading import load

    file, must_exist = arguments.config_file or DEFAULT_FILE, arguments.config_file is not None
    config = load(file, must_exist, handed=not again)
    web_config = getattr(arguments, "web_config_file", None)
    name = Path.cwd() / web_config if web_config is not None else config.web.config_file
    if name is None:
        return config
    web = msgspec.structs.replace(config.web, config_file=str(folder_of(arguments) / name))
    return _laid_over(config, web=web) if web_config is not None else msgspec.structs.replace(config, web=web)


def folder_of(arguments: argparse.Namespace) -> Path:
    """Return where relative paths of the configuration begin: beside it, or here if it comes through a pipe."""
    from agent.lib.textfile import descriptor_of

    file = arguments.config_file or DEFAULT_FILE
    return Path.cwd() if descriptor_of(file) is not None else file.absolute().parent


def read_config(arguments: argparse.Namespace, *, again: bool = False) -> Config:
    """Return the file's configuration with the command line laid over it. Raises UserError."""
    import msgspec

    from agent.config.checks import check_url_path
    from agent.config.schema import parse_value
    from agent.lib.wording import one_line

    config = read_file(arguments, again=again)
    backends, web = config.backends, config.web
    devices = arguments.backend or ("synthetic" if arguments.scenario else None)
    if devices is not None:
        scenario = backends.scenario if devices == "synthetic" else None
        replay, trace = backends.replay, backends.trace
        # Absolute: beside the configuration's folder it would be another file than the one that was named here.
        if devices.startswith(TRACE):
            trace, devices = str(Path(devices.removeprefix(TRACE)).absolute()), "trace"
        if devices.startswith(REPLAY):
            file, node = _whose(devices.removeprefix(REPLAY))
            replay, devices = msgspec.structs.replace(replay, file=str(file), node=node), "replay"
        backends = msgspec.structs.replace(backends, devices=devices, scenario=scenario, replay=replay, trace=trace)
    if arguments.scenario is not None:
        if backends.devices != "synthetic":
            raise UserError(f"--scenario needs --backend synthetic, not {backends.devices}")
        backends = msgspec.structs.replace(backends, scenario=arguments.scenario)
    backends = msgspec.structs.replace(backends, replay=_replay(arguments, backends.replay))
    options = {
        "listen": tuple(arguments.listen) if getattr(arguments, "listen", None) else None,
        "telemetry_path": getattr(arguments, "telemetry_path", None),
        "enable_lifecycle": getattr(arguments, "lifecycle", None),
    }
    web = msgspec.structs.replace(web, **{key: value for key, value in options.items() if value is not None})
    parse_value("--web.telemetry-path", check_url_path, web.telemetry_path)
    for name, root in (("--path.sysfs", arguments.sysfs), ("--path.procfs", arguments.procfs)):
        if not os.path.isdir(root):  # noqa: PTH112 unlike Path's it never raises
            raise UserError(f"{name}: {one_line(str(root))} is not a directory")
    return _laid_over(config, backends=backends, web=web)


def _laid_over(config: Config, **sections: Section) -> Config:
    """Return the configuration with other sections; its source knows which keys are no longer those of the file."""
    import msgspec

    replaced = {
        f"{name}.{key}"
        for name, new in sections.items()
        for key in new.__struct_fields__
        if getattr(new, key) != getattr(getattr(config, name), key)
    }
    source = msgspec.structs.replace(config.source, replaced=config.source.replaced | replaced)
    return msgspec.structs.replace(config, source=source, **sections)


def _whose(text: str) -> tuple[Path, str | None]:
    """Return a recording and the node that is meant: FILE#NODE, or a file whose name may have such a sign itself."""
    name, _, node = text.rpartition("#")
    if not (name and node) or os.path.lexists(text):
        return Path(text).absolute(), None
    return Path(name).absolute(), node


def _replay(arguments: argparse.Namespace, replay: ReplayConfig) -> ReplayConfig:
    """Return how to replay, with the command line laid over it. Raises UserError."""
    import msgspec

    from agent.lib.wording import one_line

    if arguments.replay_loop is not None:
        replay = msgspec.structs.replace(replay, loop=arguments.replay_loop)
    if arguments.replay_speed is None:
        return replay
    try:
        speed = float(arguments.replay_speed)
    except ValueError:
        speed = 0.0
    if not 0.1 <= speed <= 1000:
        raise UserError(f"--replay.speed: {one_line(arguments.replay_speed)} is not a number from 0.1 to 1000")
    return msgspec.structs.replace(replay, speed=speed)


def read_options(arguments: argparse.Namespace) -> CommandLineOptions:
    options = (arguments.sysfs, arguments.procfs, arguments.log_level, arguments.log_format)
    return CommandLineOptions(*options, folder_of(arguments))


def scenario_of(config: Config) -> str | None:
    """Return the scenario's name or file, None unless the devices are synthetic."""
    return (config.backends.scenario or DEFAULT_SCENARIO) if config.backends.devices == "synthetic" else None
