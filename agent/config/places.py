"""Where the keys of a configuration are written, for errors: FILE:LINE: key: problem; remedy."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar, cast

from agent.config.schema import Config, ConfigError
from agent.lib import yamltree
from agent.lib.typed_yaml import YamlFile

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_ITEM = re.compile(r"\[[0-9.]+\]$")


def placed(config: Config, problem: str) -> ConfigError:
    """Return an error found after the reading of a configuration, whose text begins with its key, with file and line.

    A key that is not in the file, or that the command line has replaced, has no line there.
    """
    if not config.source.text:
        return ConfigError(problem)
    places = YamlFile.parse(config.source.text, config.source.name, ConfigError, yamltree.Bounds())
    key = max((each for each in places if problem.startswith(f"{each}:")), key=len, default="")
    shown = _ITEM.sub("", key)
    if not key or any(f"{shown}.".startswith(f"{each}.") for each in config.source.replaced):
        return ConfigError(problem)
    return ConfigError(f"{places.place(key)}: {shown}{problem[len(key) :]}")


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
