"""How a client of ours logs in over HTTP: a password or a token from a file, read anew for each connection.

A secret is never part of the configuration itself, nor sent over a network in clear.
"""

from __future__ import annotations

import base64
from pathlib import Path

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def check_login(username: str, password_file: str | None, bearer_token_file: str | None) -> None:
    """Whether these can be used together. Raises ValueError."""
    if bool(username) != bool(password_file):
        raise ValueError("username and password_file belong together; give both or neither")
    if username and bearer_token_file:
        raise ValueError("give either username and password_file or bearer_token_file")


def authorization(username: str, password_file: str | None, bearer_token_file: str | None) -> dict[str, str]:
    """The header to log in with, if any. Raises OSError or ValueError for a file that cannot be used."""
    if bearer_token_file:
        token = _secret(bearer_token_file)
        if not token.isascii():
            raise ValueError(f"{bearer_token_file}: a token is ASCII")
        return {"Authorization": f"Bearer {token}"}
    if password_file:
        login = f"{username}:{_secret(password_file)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(login).decode('ascii')}"}
    return {}


def _secret(file: str) -> str:
    try:
        text = Path(file).read_text(encoding="utf-8").strip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: is not UTF-8 text") from error
    if not text or not text.isprintable():
        raise ValueError(f"{file}: want one line of text, and nothing else")
    return text
