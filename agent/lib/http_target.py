"""The URL of an HTTP server and how to log in there; rejects what could not work or would expose a password.

A secret is read from its file for each connection, and never sent unencrypted over a network, nor shown to anyone: many
webhooks are protected only by their path, and some servers repeat what they were sent.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from agent.lib.textfile import CERTIFICATES, SECRET, read_text

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MASK = "***"
_ADDRESS = re.compile(r"[A-Za-z0-9.-]{1,253}:[0-9]{1,5}/?|\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5}/?")
"""An address in the place of a URL: too little for a client, and no secret."""
SHORTEST_SECRET = 6
"""Characters below which a part of a path is not a secret, and hiding it would spoil every message."""


def certificates(file: str) -> str:
    """Return the certificates of a file, as TLS takes them. Raises ReadError.

    The library would open the file itself, and wait forever if it is a pipe without a writer.
    """
    return read_text(file, CERTIFICATES).encode("ascii", "replace").decode("ascii")  # comments may be in any language


def secret(file: str) -> str:
    """Return the password or token that a file holds, and nothing else. Raises ValueError."""
    text = read_text(file, SECRET).strip("\r\n")
    if not text or not text.isprintable():
        raise ValueError(f"{file}: must contain exactly one line of text")
    return text


def shown_url(url: str) -> str:
    """Return a URL that anyone may see: its path is replaced by a mark that distinguishes it from others of the same
    host.

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
    if not host:
        return MASK
    if not rest:
        return f"{parts.scheme}://{host}"
    from hashlib import blake2b  # it brings OpenSSL, a mebibyte that an agent without receivers need not have

    return f"{parts.scheme}://{host}/{MASK}{blake2b(rest.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def secrets_of(path: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what must not be repeated of a request: the parts of its path, and its login in every form."""
    candidates = {path, *path.split("/")}
    kind, _, login = headers.get("Authorization", "").partition(" ")
    candidates.add(login)
    if kind == "Basic":
        candidates.add(base64.b64decode(login).decode("utf-8", "replace").partition(":")[2])
    return tuple(
        sorted((candidate for candidate in candidates if len(candidate) >= SHORTEST_SECRET), key=len, reverse=True)
    )


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets."""
    for s in secrets:
        text = text.replace(s, MASK)
    return text


TLS_KEYS = ("ca_file", "cert_file", "server_name")
"""Keys of a login that mean nothing without TLS."""


class HttpLogin(Struct, frozen=True, kw_only=True):
    """How the agent logs in to a server, and which certificates it trusts. Raises ValueError.

    The files hold only the password, the token, a key or certificates, and are read for each connection. `server_name`
    is the name that the server's certificate must have, if not the host's. With `pinned`, `ca_file` is the certificate
    of the very server that is asked, and the name in it does not matter.
    """

    username: str = ""
    password_file: str | None = None
    bearer_token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    verify: bool = True
    pinned: bool = False

    def __post_init__(self) -> None:
        if bool(self.username) != bool(self.password_file):
            raise ValueError("username and password_file belong together; give both or neither")
        if self.username and self.bearer_token_file:
            raise ValueError("give either username and password_file or bearer_token_file")
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together; give both or neither")

    @property
    def is_secret(self) -> bool:
        """Whether there is something that must not be sent unencrypted."""
        return bool(self.username or self.bearer_token_file)

    def authorization(self) -> dict[str, str]:
        """Return the header to log in with, if any. Raises ValueError for a file that cannot be used."""
        if self.bearer_token_file:
            token = secret(self.bearer_token_file)
            if not token.isascii():
                raise ValueError(f"{self.bearer_token_file}: a token must be ASCII")
            return {"Authorization": f"Bearer {token}"}
        if self.password_file:
            login = f"{self.username}:{secret(self.password_file)}".encode()
            return {"Authorization": f"Basic {base64.b64encode(login).decode('ascii')}"}
        return {}


class HttpTarget(HttpLogin, frozen=True):
    """A login with a server's address. `timeout` is how many seconds its user waits. Raises ValueError."""

    url: str
    timeout: float = 10.0

    def __post_init__(self) -> None:
        parts = split_url(self.url)
        try:
            HttpLogin.__post_init__(self)
        except ValueError as error:
            raise ValueError(f"url {self.shown!r}: {error}") from error
        if self.is_secret and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError(f"url {self.shown!r}: would send the credentials in clear text; use https")
        for key in TLS_KEYS:
            if getattr(self, key) and parts.scheme == "http":
                raise ValueError(f"url {self.shown!r}: {key} needs https; use https, or remove {key}")
        if not 0 < self.timeout < float("inf"):
            raise ValueError(f"url {self.shown!r}: timeout {self.timeout}: must be a number of seconds above 0")

    @property
    def shown(self) -> str:
        """The URL as pages, logs and files may show it: without its path, which may be a secret."""
        return shown_url(self.url)

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or (443 if self.tls else 80)

    @property
    def tls(self) -> bool:
        return urlsplit(self.url).scheme == "https"

    @property
    def path(self) -> str:
        """The path of the URL, without a slash at its end; empty for the root."""
        return urlsplit(self.url).path.rstrip("/")


WANTED = "give http://HOST:PORT or https://HOST:PORT, with a path if needed"


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL, if it can be used; an error never shows a password."""
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("url: must be printable ASCII without spaces; write anything else as %XX")
    if "?" in url or "#" in url:
        raise ValueError("url: must not contain ? or #; a secret belongs in bearer_token_file")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValueError(f"url: {error}; {WANTED}") from error
    if "@" in parts.netloc:
        raise ValueError("url: contains credentials; use username and password_file")
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"url {shown_url(url)!r}: {error}; {WANTED}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"url {shown_url(url)!r}: {WANTED}")
    return parts
