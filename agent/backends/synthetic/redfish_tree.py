"""A tree of Redfish documents that link to each other, as DMTF's schemas have them (DSP8010)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]
OK, WARNING, CRITICAL = "OK", "Warning", "Critical"


class RedfishTree:
    """Documents by their paths; the root is there from the beginning."""

    def __init__(self, root: str) -> None:
        self.documents: dict[str, Document] = {}
        self.add(root, {})

    def add(self, path: str, document: Document) -> str:
        """A document of its own; returns its path."""
        self.documents[path] = {"@odata.id": path, **document}
        return path

    def part(self, owner: str, member: str, document: Document) -> str:
        """A document that another one links to as its `member`; returns its path."""
        path = f"{owner.rstrip('/')}/{member}"
        self.documents[owner][member] = {"@odata.id": path}
        return self.add(path, document)

    def collection(self, owner: str, member: str, documents: Mapping[str, Document]) -> str:
        """A collection of documents, by their Ids, that another one links to; returns its path."""
        path = self.part(owner, member, {})
        links = [{"@odata.id": self.add(f"{path}/{each}", document)} for each, document in documents.items()]
        self.documents[path]["Members"] = links
        return path


def status(health: str = OK) -> Document:
    """A part that is switched on, and how it is."""
    return {"Status": {"State": "Enabled", "Health": health}}


def excerpt(value: float, digits: int = 1) -> Document:
    """A sensor's reading, as precise as a controller gives it."""
    return {"Reading": round(value, digits)}


def redundancy(name: str, needed: int, members: int, health: str) -> Document:
    """A group of which so many members have to work."""
    return {"GroupName": name, "RedundancyType": "NPlusM", "MinNeededInGroup": needed, "MaxSupportedInGroup": members,
            **status(health)}  # fmt: skip
