"""Finds the nodes that a file or an option means: names, Slurm's ranges such as node[5-12], lists of these, or all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agent.backends.synthetic.loader import ScenarioReader
from agent.backends.synthetic.scenario_schema import nearest
from agent.commands.simulate.job_spans import NodeDraft
from agent.commands.simulate.site_model import SiteRack
from agent.lib.wording import shown

_RANGE = re.compile(r"([A-Za-z][A-Za-z0-9._-]{0,62})\[([0-9]{1,6})-([0-9]{1,6})\]")


class SitePlaces:
    """The nodes and racks of a site by their names. All methods raise ScenarioError."""

    def __init__(self, reader: ScenarioReader, drafts: Sequence[NodeDraft], racks: Sequence[SiteRack]) -> None:
        self._reader = reader
        self.drafts = {draft.name: draft for draft in drafts}
        self._racks = {rack.name: rack for rack in racks}

    def find(self, keys: Mapping[str, object], path: str) -> list[NodeDraft]:
        """The nodes that the keys `node` and `rack` name: one of the two has to be there."""
        given = [word for word in ("node", "rack") if word in keys]
        if len(given) != 1:
            self._reader.fail(path, "names no place; give node or rack" if not given else "name node or rack, not both")
        word = given[0]
        if word == "node":
            return self.nodes(keys["node"], f"{path}.node")
        names = self._names(keys["rack"], f"{path}.rack", self._racks, "rack")
        return [self.drafts[node] for name in names for node in self._racks[name].nodes]

    def nodes(self, raw: object, path: str) -> list[NodeDraft]:
        """The nodes that a value means."""
        return [self.drafts[name] for name in self._names(raw, path, self.drafts, "node")]

    def _names(self, raw: object, path: str, known: Mapping[str, object], what: str) -> list[str]:
        if raw == "all":
            return list(known)
        found: dict[str, None] = {}
        for part in raw if isinstance(raw, list) else [raw]:
            for name in self._spelled_out(part, path, what, len(known)):
                if name not in known:
                    hint = nearest(name, known)
                    self._reader.fail(path, f"there is no {what} {shown(name)} in this site; {hint}")
                found[name] = None
        return list(found)

    def _spelled_out(self, part: object, path: str, what: str, most: int) -> list[str]:
        example = f"{what}3, {what}[3-7]" if what == "node" else "r3, r[3-7]"
        if not isinstance(part, str):
            self._reader.fail(path, f"expected a name, a range or a list of these, such as {example}, or all")
        match = _RANGE.fullmatch(part)
        if match is None:
            return [part]
        first, last = int(match[2]), int(match[3])
        if not first <= last < first + most:
            self._reader.fail(path, f"{shown(part)} is no range within this site, which has {most} {what}s")
        return [f"{match[1]}{number}" for number in range(first, last + 1)]
