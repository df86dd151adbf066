"""How commands log in to agents and servers: by a file in the format that promtool takes under the same option.

The format: prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config, as far as it says how to log
in. Secrets stand in files of their own. Without the option, the agent of this node is asked as the rack's peers ask
each other, and is known by the very certificate that its web configuration names (`identity.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.lib.wording import UserError

if TYPE_CHECKING:
    from agent.lib.typed_yaml import YamlFile

OPTION = "--http.config.file"
MOST_FILE = 64 * 1024

_TYPE, _UNVERIFIED = "type", "insecure_skip_verify"
_KEYS: Mapping[str, tuple[str, ...]] = {
    "tls_config": ("ca_file", "cert_file", "key_file", "server_name", _UNVERIFIED),
    "basic_auth": ("username", "password_file"),
    "authorization": (_TYPE, "credentials_file"),
}
"""The keys of the file; most have the name of the field of `HttpLogin` that they set."""
_INLINE = {"password": "password_file", "credentials": "credentials_file"}


def add_http_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        OPTION,
        dest="http_config_file",
        type=Path,
        metavar="FILE",
        help="file with the login over HTTP: tls_config, basic_auth and authorization, as for promtool",
    )


def refuse_beside_url(arguments: argparse.Namespace, options: Iterable[str], reason: str) -> None:
    """Refuse options about this node's devices where only agents are asked. Raises UserError."""
    for option in options if arguments.url is not None else ():
        if getattr(arguments, option) not in (None, False):
            name = option.replace("_", "-")
            raise UserError(f"--{name}: cannot be used with --url, which {reason}; leave out one")


def given_login(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return what the option's file says, as `HttpLogin` takes it; None without the option. Raises UserError."""
    file: Path | None = getattr(arguments, "http_config_file", None)
    return None if file is None else read_login(file)


def read_login(path: Path) -> dict[str, Any]:
    """Return the login in a file; relative paths in it start at its folder. Raises UserError."""
    from agent.lib.http_target import HttpLogin  # the help needs none of these
    from agent.lib.typed_yaml import YamlFile
    from agent.lib.yamltree import Bounds

    file = YamlFile.read(path, MOST_FILE, lambda text: UserError(f"{OPTION}: {text}"), Bounds(depth=8))
    login: dict[str, Any] = {}
    for name, section in _mapping(file, "", file.raw, _KEYS).items():
        for key, value in _mapping(file, name, section, _KEYS[name]).items():
            kind, text = bool if key == _UNVERIFIED else str, str(value)
            if not isinstance(value, kind) or value == "":
                file.fail(f"{name}.{key}", "must be true or false" if kind is bool else "must be a text")
            if key == _UNVERIFIED:
                login["verify"] = not value
            elif key == _TYPE and text.lower() != "bearer":
                file.fail(f"{name}.{key}", "must be Bearer; for a password use basic_auth")
            elif key != _TYPE:
                field = "bearer_token_file" if key == "credentials_file" else key
                login[field] = str(path.absolute().parent / text) if key.endswith("_file") else text
    try:
        HttpLogin(**login)
    except ValueError as error:
        file.fail("", str(error))
    return login


def _mapping(file: YamlFile, path: str, value: Any, keys: Iterable[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        file.fail(path, "must be a mapping of keys and values")
    for key in set(value) & set(_INLINE):
        remedy = f"write it into a file, and name that in {_INLINE[key]}"
        file.fail(f"{path}.{key}", f"is a secret in a configuration; {remedy}")
    file.check_keys(value, path, keys)
    return value
