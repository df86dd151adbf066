"""The modules of a package, for what is registered by being there: a new file in a folder is found.

`pkgutil` would do the same and import `inspect`, which takes a mebibyte of each process that stays.
"""

from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType


def modules_in(package: str, folders: Iterable[str], leave_out: Collection[str] = ()) -> Iterator[ModuleType]:
    """Yield every module and package in the `folders` (`__path__`) of a package, imported, in the order of their names.

    Those named in `leave_out` are not imported.
    """
    for name in module_names(folders):
        if name not in leave_out:
            yield import_module(f"{package}.{name}")


def module_names(folders: Iterable[str]) -> list[str]:
    """Return the names of the modules and packages in these folders."""
    found = (each for folder in folders for each in Path(folder).iterdir())
    names = {each.stem for each in found if each.suffix == ".py" or (each / "__init__.py").exists()}
    return sorted(names - {"__init__"})
