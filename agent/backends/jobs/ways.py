"""Sources of job information that may be unavailable: each failure is logged once, and each recovery once."""

from __future__ import annotations

import logging

log = logging.getLogger("coldplate.jobs")


class Ways:
    """`barred` holds the detail of each source that is barred for lack of a permission, as of the last look."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self.barred: dict[str, str] = {}

    def begin(self) -> None:
        """Begin a look: a source that is not tried in it is neither barred nor open."""
        self.barred = {}

    def open(self, name: str) -> None:
        """The source was tried, and it answered."""
        if name in self._told:
            self._told.discard(name)
            log.info("source recovered: %s", name)

    def fail(self, name: str, detail: str, denied: bool = True) -> None:
        """The source was tried without success; `denied` says that only a permission is missing."""
        if denied:
            self.barred[name] = detail
        if name not in self._told:
            self._told.add(name)
            log.warning("%s", detail, extra={"facts": {"missing": name}})
