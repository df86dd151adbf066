"""Checks of texts, which must not break a page, log, label or address, and of lists, which must not be absurdly long.

An implausible value is rejected when the file is read; the damage that it does hours later, in a thread or in a
receiver's parser, would be hard to trace back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from agent.lib.wording import shown

Fail = Callable[[str, str], None]
"""Called with the key path and the problem; raises."""

MOST_ITEMS = 1000
"""Most entries of one list or mapping."""
MOST_TEXT = 4096
"""Most characters of one text: no path has more. Queries and annotations of overrides have limits of their own."""
_LONG = re.compile(r"rules\.override\..+\.(?:expr|annotations\..+)", re.DOTALL)
_LISTEN = re.compile(r"([A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?\]):(0|[1-9][0-9]{0,4})")
_URL_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,199}")
_BASE_URL = re.compile(r"https?://[A-Za-z0-9._~\[\]:-]{1,260}(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?")
_BREAKING = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of Unicode: controls, halves of pairs, and separators of lines and paragraphs."""


def check_texts(raw: Any, path: str, fail: Fail) -> None:
    """Check what applies to every text, list and mapping of the file."""
    if isinstance(raw, str):
        allowed = "\n\t" if _LONG.fullmatch(path) else ""
        if not allowed and len(raw) > MOST_TEXT:
            fail(path, f"has {len(raw)} characters; the limit is {MOST_TEXT}")
        if not raw.isprintable() and any(
            unicodedata.category(each) in _BREAKING and each not in allowed for each in raw
        ):
            fail(path, f"{shown(raw)} has a line break or another control character; remove it")
        return
    if not isinstance(raw, (list, dict)):
        return
    if len(raw) > MOST_ITEMS:
        fail(path, f"has {len(raw)} entries; the limit is {MOST_ITEMS}")
    if isinstance(raw, list):
        for each in raw:
            check_texts(each, path, fail)
        return
    for key, value in raw.items():
        inner = f"{path}.{key}".lstrip(".")
        if isinstance(key, str):
            check_texts(key, inner if key.isprintable() else path, fail)
        check_texts(value, inner, fail)


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` or `[address]:port`. Raises ValueError with the remedy."""
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ValueError(f"{shown(text)} is not an address; write host:port, :port or [IPv6 address]:port")
    return match[1].strip("[]"), int(match[2])


def check_url_path(text: str) -> None:
    """Check that a text can be the path of the metrics. Raises ValueError with the remedy."""
    if not text.startswith("/"):
        raise ValueError(f"{shown(text)} must begin with '/'")
    if not _URL_PATH.fullmatch(text):
        raise ValueError(
            f"{shown(text)} is not a path; use letters, digits and . _ ~ - after the slashes, such as /metrics"
        )


def base_url(text: str) -> str:
    """An address to which a path is added, without the slash at its end. Raises ValueError with the remedy."""
    if not _BASE_URL.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a URL; write http(s)://host/path, without ? and #")
    return text.rstrip("/")
