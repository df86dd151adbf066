"""The committed dashboards for a site with other names: other labels, another prefix, another data source.

Names are replaced only where they are used as names: in queries, legends and the columns of tables; never inside a
text. Recorded series keep their names, since the rules that write them are evaluated before a site relabels anything.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

Json = dict[str, Any]

GENERATED = Path(__file__).parent / "generated"
LABELS = ("cluster", "instance", "rack", "job_id")
"""The labels that a site may have renamed."""
PREFIX = "coldplate_"
AGENTS = "http://${__value.raw}/runbooks"
"""How links of the committed boards begin: the value of the column is an agent's address."""

_TOKEN = re.compile(r'"[^"]*"|\$\{[^}]*\}|\$\w+|\d\w*|[a-zA-Z_:][a-zA-Z0-9_:]*')
_QUERIES = {"expr", "definition", "query"}
_LEGENDS = {"legendFormat", "titleFormat", "textFormat"}
_COLUMNS = {"indexByName", "renameByName"}


class SiteNames(Struct, frozen=True):
    """A site's names. `labels` maps a label of coldplate to the site's."""

    labels: Mapping[str, str] = field(default_factory=dict)
    prefix: str = PREFIX
    source: str | None = None
    runbooks: str = AGENTS
    """Where links to runbooks lead: to agents, or to a base URL without a slash at its end."""


def dashboards(site: SiteNames) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each dashboard, for that site."""
    for path in sorted(GENERATED.glob("*.json")):
        board = _renamed(json.loads(path.read_text(encoding="utf-8")), site)
        if site.source is not None:
            _open_with(board, site.source)
        yield path.name, as_text(board)


def as_text(board: Json) -> str:
    """Return a board as the text that is committed."""
    return json.dumps(board, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _renamed(value: Any, site: SiteNames, key: str = "") -> Any:
    if isinstance(value, dict):
        if key in _COLUMNS:
            return {site.labels.get(name, name): inner for name, inner in value.items()}
        return {name: _renamed(inner, site, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, site, key) for inner in value]
    if isinstance(value, str) and key in _QUERIES:
        return _query(value, site)
    if isinstance(value, str) and key == "url" and value.startswith(AGENTS):
        return site.runbooks + value.removeprefix(AGENTS)
    if isinstance(value, str) and key in _LEGENDS:
        return re.sub(r"\{\{(\w+)\}\}", lambda each: f"{{{{{site.labels.get(each[1], each[1])}}}}}", value)
    return value


def _query(text: str, site: SiteNames) -> str:
    def replaced(token: re.Match[str]) -> str:
        name = token[0]
        if name[0] == '"' and text[: token.start()].endswith(", "):  # an argument of label_replace, not a label's value
            return f'"{site.labels.get(name[1:-1], name[1:-1])}"'
        if name.startswith(PREFIX):
            return site.prefix + name.removeprefix(PREFIX)
        return name if text[token.end() : token.end() + 1] == "(" else site.labels.get(name, name)

    return _TOKEN.sub(replaced, text)


def _open_with(board: Json, source: str) -> None:
    """Let a board open with that data source; the user can still choose another."""
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource":
            variable["current"] = {"text": source, "value": source}
