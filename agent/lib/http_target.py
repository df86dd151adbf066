"""The URL of an HTTP server and its login; rejects what could not work or would expose a password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from agent.lib.credentials import LOOPBACK, authorization, check_login, shown_url

TLS_KEYS = ("ca_file", "cert_file", "server_name")
"""Keys of a login that mean nothing without TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLogin:
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
        check_login(self.username, self.password_file, self.bearer_token_file)
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together; give both or neither")

    @property
    def is_secret(self) -> bool:
        """Whether there is something that must not be sent unencrypted."""
        return bool(self.username or self.bearer_token_file)

    def authorization(self) -> dict[str, str]:
        """The header to log in with, if any. Raises ValueError for a file that cannot be used."""
        return authorization(self.username, self.password_file, self.bearer_token_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget(HttpLogin):
    """A login with a server's address. `timeout` is how many seconds its user waits. Raises ValueError."""

    url: str = field(kw_only=False)
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
    """The parts of a URL, if it can be used; an error never shows a password."""
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
        raise ValueError(f"url: {error}; {WANTED}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"url {shown_url(url)!r}: {WANTED}")
    return parts
