"""Where the keys of a configuration are written, for errors: FILE:LINE: key: problem; remedy."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Concatenate, NoReturn, ParamSpec, TypeVar, cast

from agent.config.schema import Config, ConfigError, ConfigSource
from agent.lib import yamltree
from agent.lib.wording import one_line
from agent.lib.yamltree import Node

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_ITEM = re.compile(r"\[[0-9.]+\]$")


class Places:
    """Lines of key paths in a file; an item of a list has its number behind the key: `rules.files[0]`."""

    def __init__(self, name: str, tree: Node | None) -> None:
        self._name = name
        self._lines: dict[str, int] = {}
        self._walk(tree, "")

    def _walk(self, tree: Node | None, path: str) -> None:
        if isinstance(tree, yamltree.YamlMapping):
            for key, value in yamltree.pairs_of(tree, lambda *_: None):
                inner = f"{path}.{key.text}".lstrip(".")
                self._lines.setdefault(inner, key.line)
                self._walk(value, inner)
        elif isinstance(tree, yamltree.YamlList):
            for number, item in enumerate(tree.items):
                self._lines.setdefault(f"{path}[{number}]", item.line)

    def __iter__(self) -> Iterator[str]:
        """Return all key paths of the file."""
        return iter(self._lines)

    def of(self, path: str) -> str:
        """`file:line` of a key path, or of the nearest key above it."""
        while path and path not in self._lines:
            path = _ITEM.sub("", path) if _ITEM.search(path) else path.rpartition(".")[0]
        return f"{self._name}:{self._lines[path]}" if path else self._name

    def fail(self, key: str, problem: str) -> NoReturn:
        """Reject the value at a key path."""
        raise ConfigError(f"{self.of(key)}: {one_line(key, 200) or 'file'}: {one_line(problem)}")


def placed(config: Config, problem: str) -> ConfigError:
    """Return an error found after the reading of a configuration, whose text begins with its key, with file and line.

    A key that is not in the file, or that the command line has replaced, has no line there.
    """
    if not config.source.text:
        return ConfigError(problem)
    places = _places(config.source)
    key = max((each for each in places if problem.startswith(f"{each}:")), key=len, default="")
    shown = _ITEM.sub("", key)
    if not key or any(f"{shown}.".startswith(f"{each}.") for each in config.source.replaced):
        return ConfigError(problem)
    return ConfigError(f"{places.of(key)}: {shown}{problem[len(key) :]}")


def with_places(
    function: Callable[Concatenate[Config, _Parameters], _Result],
) -> Callable[Concatenate[Config, _Parameters], _Result]:
    """Make a function name file and line in each ConfigError that it raises about the configuration it is given."""

    @functools.wraps(function)
    def named(config: Config, *arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        try:
            return function(config, *arguments, **options)
        except ConfigError as error:
            raise placed(config, str(error)) from error

    return cast("Callable[Concatenate[Config, _Parameters], _Result]", named)


def _places(source: ConfigSource) -> Places:
    return Places(source.name, yamltree.compose(source.text, yamltree.Bounds()).root)
