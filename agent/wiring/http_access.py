"""How commands log in to agents and servers: by a file in the format that promtool takes under the same option.

The format: prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config, as far as it says how to log
in. Secrets stand in files of their own. Without the option, the agent of this node is asked as the rack's peers ask
each other, and is known by the very certificate that its web configuration names (`own_agent.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from agent.lib.wording import UserError

OPTION = "--http.config.file"
MOST_FILE = 64 * 1024

_TLS = {"ca_file": str, "cert_file": str, "key_file": str, "server_name": str, "insecure_skip_verify": bool}
_KEYS: Mapping[str, Mapping[str, type]] = {
    "tls_config": _TLS,
    "basic_auth": {"username": str, "password_file": str},
    "authorization": {"type": str, "credentials_file": str},
}
_FILES = frozenset({"ca_file", "cert_file", "key_file", "password_file", "credentials_file"})
_INLINE = {"password": "password_file", "credentials": "credentials_file"}


def add_http_config(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the file."""
    parser.add_argument(
        OPTION,
        dest="http_config_file",
        type=Path,
        metavar="FILE",
        help="how to log in over HTTP: tls_config, basic_auth and authorization, as promtool has them",
    )


def given_login(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return what the option's file says, as `HttpLogin` takes it; None without the option. Raises UserError."""
    file: Path | None = getattr(arguments, "http_config_file", None)
    return None if file is None else read_login(file)


def read_login(file: Path) -> dict[str, Any]:
    """Return the login in a file; relative paths in it start at its folder. Raises UserError."""
    from agent.lib import textfile, yamltree

    try:
        raw = yamltree.load(textfile.read_text(file, MOST_FILE), yamltree.Bounds(depth=8))
    except textfile.ReadError as error:
        raise UserError(f"{OPTION}: {error}") from error
    except yamltree.YamlError as error:
        raise UserError(f"{OPTION}: {file}:{error.line}: {error.problem}") from error
    found: dict[str, Any] = {}
    for name, section in _mapping(file, "", raw).items():
        if name not in _KEYS:
            _fail(file, str(name), f"is not supported; use {', '.join(_KEYS)}")
        for key, value in _mapping(file, name, section).items():
            _check(file, f"{name}.{key}", key, value, _KEYS[name])
            found[f"{name}.{key}"] = str(file.absolute().parent / value) if key in _FILES else value
    return _login(file, found)


def _mapping(file: Path, name: str, value: Any) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        _fail(file, name, "must be a mapping of keys and values")
    return value


def _check(file: Path, path: str, key: object, value: object, known: Mapping[str, type]) -> None:
    if key in _INLINE:
        _fail(file, path, f"is a secret in a configuration; write it into a file, and name that in {_INLINE[str(key)]}")
    if key not in known:
        _fail(file, path, f"is not supported; use {', '.join(known)}")
    if not isinstance(value, known[str(key)]) or value == "":
        _fail(file, path, "must be true or false" if known[str(key)] is bool else "must be a text")


def _login(file: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    if found.get("authorization.type", "Bearer").lower() != "bearer":
        _fail(file, "authorization.type", "must be Bearer; for a password use basic_auth")
    made = {
        "username": found.get("basic_auth.username", ""),
        "password_file": found.get("basic_auth.password_file"),
        "bearer_token_file": found.get("authorization.credentials_file"),
        **{key: found.get(f"tls_config.{key}") for key in ("ca_file", "cert_file", "key_file", "server_name")},
        "verify": not found.get("tls_config.insecure_skip_verify", False),
    }
    from agent.lib.http_target import HttpLogin

    try:
        HttpLogin(**made)
    except ValueError as error:
        _fail(file, "", str(error))
    return made


def _fail(file: Path, path: str, problem: str) -> NoReturn:
    raise UserError(": ".join(each for each in (OPTION, str(file), path, problem) if each))
