"""How a program that is only unpacked is made to run: for each kind, from its tree to a name in .programs/usr/bin.

All paths are relative to where the program is found, so that a checkout can be moved.
"""

import os
import re
import shlex
from pathlib import Path

from tests.lab.bring.archive import ShortageError

LIBRARY = re.compile(r"\.so(\.\d+)*$")
HERE = 'here=$(cd "$(dirname "$0")" && pwd)'


def as_it_is(tree: Path, ours: Path) -> None:
    """A program that needs nothing beside it."""
    ours.symlink_to(os.path.relpath(tree / program_in(tree, ours.name), ours.parent))


def with_its_templates(tree: Path, ours: Path) -> None:
    """Debian's Alertmanager looks for its templates below /usr, where one that is only unpacked has none, and no option
    says otherwise: the path in it becomes a relative one of the same length, and it is started where that leads."""
    templates = b"/usr/share/prometheus/alertmanager"
    program = tree / program_in(tree, ours.name)
    relocated = program.with_suffix(".relocated")
    relocated.write_bytes(
        program.read_bytes().replace(templates, templates.replace(b"/", b"", 1).replace(b"/", b"//", 1))
    )
    relocated.chmod(0o755)
    script(ours, f'cd "$here/{inside(tree, ours)}" && exec usr/bin/{relocated.name} "$@"')


def with_its_pages(tree: Path, ours: Path) -> None:
    """Debian's Prometheus, which looks for its pages below /usr unless an option of Debian's says otherwise. It refuses
    an option that is given twice."""
    option = "--web.local-assets"
    script(
        ours,
        f'tree="$here/{inside(tree, ours)}"',
        f'case " $* " in *" {option}="*) exec "$tree/{program_in(tree, ours.name)}" "$@" ;; esac',
        f'exec "$tree/{program_in(tree, ours.name)}" {option}="$tree/usr/share/prometheus/web" "$@"',
    )


def call(program: Path, ours: Path) -> None:
    """A program of the machine, which some ask for its own path: so it is called, and not linked to."""
    script(ours, f'exec {shlex.quote(str(program))} "$@"')


def with_its_libraries(tree: Path, ours: Path) -> None:
    """A program that takes more than the C library."""
    script(
        ours,
        f'tree="$here/{inside(tree, ours)}"',
        f'exec env LD_LIBRARY_PATH="{libraries(tree)}" "$tree/{program_in(tree, ours.name)}" "$@"',
    )


def with_its_macros(tree: Path, ours: Path) -> None:
    """A program of rpm's, which looks for the macros of its language where it would be installed, and takes the path of
    these apart at spaces: so it gets one that has none."""
    script(
        ours,
        "short=$(mktemp -d)",
        "trap 'rm -rf \"$short\"' EXIT",
        f'ln -s "$here/{inside(tree, ours)}" "$short/tree"',
        'tree="$short/tree"',
        'export RPM_CONFIGDIR="$tree/usr/lib/rpm" MAGIC="$tree/usr/lib/file/magic.mgc"',
        f'LD_LIBRARY_PATH="{libraries(tree)}" "$tree/{program_in(tree, ours.name)}" "$@"',
    )


def judge_of_units(tree: Path, ours: Path) -> None:
    """systemd-analyze with the units and libraries beside it. It wants to make /run/systemd, which an ordinary user may
    not and nobody should where no systemd runs: so it gets a /run of its own, in a user namespace, where the kernel
    allows one."""
    units = ":".join(
        f"$tree/{each}" for each in ("usr/lib/systemd/system", "lib/systemd/system") if (tree / each).is_dir()
    )
    script(
        ours,
        f'tree="$here/{inside(tree, ours)}"',
        f'export SYSTEMD_UNIT_PATH="{units}:"',
        f'set -- env LD_LIBRARY_PATH="{libraries(tree)}" "$tree/{program_in(tree, ours.name)}" "$@"',
        "if unshare --user --map-root-user --mount mount -t tmpfs tmpfs /run 2>/dev/null; then",
        '\texec unshare --user --map-root-user --mount sh -c \'mount -t tmpfs tmpfs /run && exec "$@"\' sh "$@"',
        "fi",
        'exec "$@"',
    )


def compiler(tree: Path, ours: Path) -> None:
    """tcc, with headers and libraries from the tree, and of the machine the C library itself, without which no program
    runs: the tree's `libc.so` would lead to files that are only in the tree."""
    found = next(tree.glob("usr/lib/*/tcc"), None)
    if found is None:
        raise ShortageError(f"{tree.name} holds no headers of tcc")
    machine = found.parent.name
    script(
        ours,
        f'tree="$here/{inside(tree, ours)}"',
        f'lib="$tree/usr/lib/{machine}" include="$tree/usr/include"',
        f'"$tree/{program_in(tree, "tcc")}" -B"$lib/tcc" -nostdinc -nostdlib '
        f'-isystem "$lib/tcc/include" -isystem "$include/{machine}" -isystem "$include" -L"$lib" '
        f'"$@" /lib/{machine}/libc.so.6 "$lib/libc_nonshared.a" "$lib/tcc/libtcc1.a" || exit',
        f'exec python3 "$here/{os.path.relpath(Path(__file__).with_name("no_exec_stack.py"), ours.parent)}" "$@"',
    )


def program_in(tree: Path, name: str) -> Path:
    """Where a program lies in its tree."""
    for folder in ("usr/bin", "bin", "usr/sbin", "sbin"):
        if (tree / folder / name).exists():
            return Path(folder, name)
    raise ShortageError(f"{tree.name} holds no {name}")


def libraries(tree: Path) -> str:
    """The folders of shared libraries in a tree, as a path for a shell that knows the tree as $tree."""
    folders = sorted({each.parent.relative_to(tree) for each in tree.rglob("*.so*") if LIBRARY.search(each.name)})
    return ":".join(f"$tree/{each}" for each in folders)


def inside(tree: Path, ours: Path) -> str:
    return os.path.relpath(tree, ours.parent)


def script(ours: Path, *lines: str) -> None:
    fresh = ours.with_suffix(".new")
    fresh.write_text("\n".join(("#!/bin/sh", HERE, *lines)) + "\n")
    fresh.chmod(0o755)
    fresh.rename(ours)
