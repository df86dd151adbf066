"""The `__main__` of the single file: unpacks the program for this Python among the user's caches, once, and runs it.

Libraries that are compiled cannot be loaded from an archive, and the device worker starts the interpreter anew: so what
runs is an environment as packages have it. Pythons that are too old read this file as well: no newer syntax in it.
"""

import sys

try:
    import contextlib
    import hashlib
    import os
    import shutil
    import stat
    import tempfile
    import zipfile
    from collections.abc import Iterator
except ImportError as error:  # Debian's python3-minimal has a part of the standard library
    sys.exit(
        "coldplate: this Python has not all of the standard library (" + str(error) + "): install python3, "
        "python3-minimal is not enough, or start this file with another one"
    )

PYTHONS = ((3, 10), (3, 14))
ARCHIVE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = "program/"
"""Where the program lies in the archive; `machine` beside it holds the machine that it is for."""


def fail(words: str) -> None:
    sys.exit("coldplate: " + words)


def refuse_what_cannot_work(archive: zipfile.ZipFile) -> None:
    """Says in words what the interpreter would say in a traceback."""
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        fail(
            "this file needs Python 3.10 to 3.14, and this is " + sys.version.split()[0] + ": start it with another one"
        )
    machine = archive.read("machine").decode()
    if machine != os.uname().machine:
        fail("this file is for " + machine + ", and this machine is " + os.uname().machine)


def caches() -> Iterator[str]:
    """Folders in which to keep the program: the user's own, else one of this user alone among temporary files."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    yield os.path.join(home, "coldplate")
    shared = os.path.join(tempfile.gettempdir(), "coldplate-" + str(os.getuid()))
    with contextlib.suppress(FileExistsError):
        os.mkdir(shared, 0o700)
    about = os.lstat(shared)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        fail(shared + " belongs to somebody else, or is open to others: set XDG_CACHE_HOME to a folder of your own")
    yield shared


def key(python: str) -> str:
    """Another file, another interpreter: another environment."""
    with open(ARCHIVE, "rb") as file:
        digest = hashlib.sha256(file.read())
    digest.update((python + sys.version).encode())
    return digest.hexdigest()[:16]


def unpack(archive: zipfile.ZipFile, folder: str, python: str) -> None:
    part = tempfile.mkdtemp(dir=os.path.dirname(folder))
    try:
        minor = "lib/python" + ".".join(str(each) for each in sys.version_info[:2]) + "/"
        wanted = tuple(PROGRAM + each for each in ("bin/", "lib/common/", minor))
        archive.extractall(part, [each for each in archive.namelist() if each.startswith(wanted)])
        made = os.path.join(part, PROGRAM)
        os.symlink(python, os.path.join(made, "bin", "python"))
        with open(os.path.join(made, "pyvenv.cfg"), "w") as file:
            file.write("home = " + os.path.dirname(python) + "\ninclude-system-site-packages = false\n")
        try:
            os.rename(made, folder)
        except OSError:  # another start was first
            if not os.path.isdir(folder):
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def environment(archive: zipfile.ZipFile) -> str:
    python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    name, tried = key(python), []
    for cache in caches():
        folder = os.path.join(cache, name)
        try:
            os.makedirs(cache, mode=0o700, exist_ok=True)
            if not os.path.isdir(folder):
                unpack(archive, folder, python)
            return folder
        except OSError as error:
            tried.append(str(error))
    sys.exit(
        "coldplate: it cannot be unpacked: " + "; ".join(tried) + "; set XDG_CACHE_HOME to a folder with 30 MB free"
    )


def main() -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        refuse_what_cannot_work(archive)
        folder = environment(archive)
    python = os.path.join(folder, "bin", "python")
    os.execv(python, [python, os.path.join(folder, "bin", "coldplate"), *sys.argv[1:]])


main()
