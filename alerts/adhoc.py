"""Queries whose text is known only at evaluation, because a template builds it from labels and values."""

from __future__ import annotations

from collections import OrderedDict

from alerts.promql import Query, compile_query

MOST_CHARACTERS = 65_536
"""Most characters of the texts whose queries are remembered: compiled, each character takes up to a KiB."""


class AdHocQueries:
    """Recently used compiled queries, by their texts."""

    def __init__(self) -> None:
        self.characters = 0
        self._queries: OrderedDict[str, Query] = OrderedDict()

    def compiled(self, text: str) -> Query:
        """The query of a text. Raises PromqlError."""
        query = self._queries.get(text)
        if query is not None:
            self._queries.move_to_end(text)
            return query
        query = self._queries[text] = compile_query(text)
        self.characters += len(text)
        while self.characters > MOST_CHARACTERS:
            oldest, _ = self._queries.popitem(last=False)
            self.characters -= len(oldest)
        return query
