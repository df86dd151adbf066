"""The modules of a package, for what is registered by being there: a new file in a folder is found."""

from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def modules_in(package: str, folders: Iterable[str], leave_out: Collection[str] = ()) -> Iterator[ModuleType]:
    """Yield every module and package in the `folders` (`__path__`) of a package, imported, in the order of their names.

    Those named in `leave_out` are not imported.
    """
    for found in iter_modules(folders):
        if found.name not in leave_out:
            yield import_module(f"{package}.{found.name}")
