"""How a client of ours logs in over HTTP: a password or a token from a file, read for each connection.

A secret is never part of the configuration itself, nor sent unencrypted over a network, nor shown to anyone: many
webhooks are protected only by the secret in their path, and some servers repeat what they were sent.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from agent.lib.textfile import CERTIFICATES, SECRET, read_text

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MASK = "***"
_ADDRESS = re.compile(r"[A-Za-z0-9.-]{1,253}:[0-9]{1,5}/?|\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5}/?")
"""An address in the place of a URL: too little for a client, and no secret."""
SHORTEST_SECRET = 6
"""Characters below which a part of a path is not a secret, and hiding it would spoil every message."""


def check_login(username: str, password_file: str | None, bearer_token_file: str | None) -> None:
    """Check that these can be used together. Raises ValueError."""
    if bool(username) != bool(password_file):
        raise ValueError("username and password_file belong together; give both or neither")
    if username and bearer_token_file:
        raise ValueError("give either username and password_file or bearer_token_file")


def authorization(username: str, password_file: str | None, bearer_token_file: str | None) -> dict[str, str]:
    """The header to log in with, if any. Raises ValueError for a file that cannot be used."""
    if bearer_token_file:
        token = secret(bearer_token_file)
        if not token.isascii():
            raise ValueError(f"{bearer_token_file}: a token must be ASCII")
        return {"Authorization": f"Bearer {token}"}
    if password_file:
        login = f"{username}:{secret(password_file)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(login).decode('ascii')}"}
    return {}


def certificates(file: str) -> str:
    """The certificates of a file, as TLS takes them. Raises ReadError.

    The library would open the file itself, and wait forever if it is a pipe without a writer.
    """
    return read_text(file, CERTIFICATES).encode("ascii", "replace").decode("ascii")  # comments may be in any language


def secret(file: str) -> str:
    """The password or token that a file holds, and nothing else. Raises ValueError."""
    text = read_text(file, SECRET).strip("\r\n")
    if not text or not text.isprintable():
        raise ValueError(f"{file}: must contain exactly one line of text")
    return text


def shown_url(url: str) -> str:
    """A URL that anyone may see: its path is replaced by a mark that distinguishes it from others of the same host.

    Of one without a scheme HOST:PORT is shown; all of anything else is hidden, because it may be a secret in a wrong
    place.
    """
    if _ADDRESS.fullmatch(url):
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    host = parts.netloc.rpartition("@")[2]
    rest = url.partition("//")[2][len(parts.netloc) :].strip("/") if parts.netloc else url
    mark = f"/{MASK}{_digest(rest)}" if rest else ""
    return f"{parts.scheme}://{host}{mark}" if host else MASK


def _digest(text: str) -> str:
    from hashlib import blake2b  # it brings OpenSSL, a mebibyte that an agent without receivers need not have

    return blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()


def secrets_of(path: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """What must not be repeated of a request: the parts of its path, and its login in every form."""
    found = {path, *path.split("/")}
    kind, _, login = headers.get("Authorization", "").partition(" ")
    found.add(login)
    if kind == "Basic":
        found.add(base64.b64decode(login).decode("utf-8", "replace").partition(":")[2])
    return tuple(sorted((each for each in found if len(each) >= SHORTEST_SECRET), key=len, reverse=True))


def masked(text: str, secrets: Iterable[str]) -> str:
    """A text without these secrets."""
    for each in secrets:
        text = text.replace(each, MASK)
    return text
