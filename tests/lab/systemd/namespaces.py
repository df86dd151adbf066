"""The temporary folder of a machine, which goes with it; or with the next run, where its maker was killed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PREFIX = "coldplate-machine."
FOLDERS = Path("/var/tmp")
"""Not /tmp, which may be in memory: a machine takes up to a gigabyte."""


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A folder of this process's own."""
    for left in FOLDERS.glob(f"{PREFIX}*"):
        if not alive(left.name):
            shutil.rmtree(left, ignore_errors=True)
    prefix = f"{PREFIX}{os.getpid()}."
    with tempfile.TemporaryDirectory(prefix=prefix, dir=FOLDERS, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def alive(name: str) -> bool:
    """Whether the process is there that made what has this name."""
    return Path("/proc", name.removeprefix(PREFIX).partition(".")[0]).exists()


PATIENCE = 600.0
"""Seconds for all checks."""
END = "CHECKS-END"


def follow(path: Path, alive: Callable[[], bool]) -> bool:
    """Print the file as it grows, until its last line, its writer's end or `PATIENCE`; whether no check failed."""
    until, printed = time.monotonic() + PATIENCE, 0
    while True:
        over = not alive() or time.monotonic() > until
        text = path.read_bytes().decode(errors="replace").replace("\r", "") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        print(whole[printed:], end="", flush=True)
        printed = len(whole)
        if END in whole:
            return f"{END} 0\n" in whole
        if over:
            print("FAIL the machine ended, or ran out of time, before the checks were through", file=sys.stderr)
            return False
        time.sleep(0.2)


WHAT = "systemd in namespaces over an overlay on this machine"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CGROUPS = Path("/sys/fs/cgroup")


def unavailable() -> str:
    """Why this machine cannot be had here; "" if it can."""
    if not any(Path(each).exists() for each in ("/lib/systemd/systemd", "/usr/lib/systemd/systemd")):
        return "systemd is not installed"
    missing = [each for each in ("unshare", "mount", "chroot", "ip") if shutil.which(each) is None]
    return f"{missing[0]} is not installed" if missing else forbidden()


def forbidden() -> str:
    """What would be needed and may not be done here, as in many a container; "" if all may be."""
    if os.geteuid() != 0:
        return "it needs root"
    script = 'cd "$0" && mkdir u w r && mount -t overlay -o lowerdir=/,upperdir=u,workdir=w overlay r'
    unshare = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork"]
    with place() as folder:
        tried = subprocess.run([*unshare, "sh", "-c", script, str(folder)], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"namespaces or an overlay are refused: {tried.stderr.strip()}"
    for mountpoint, _, _ in _hierarchies():
        trial = mountpoint / f"{PREFIX}{os.getpid()}"
        try:
            trial.mkdir()
            trial.rmdir()
        except OSError as error:
            return f"no cgroup may be made: {error}"
    return "" if _hierarchies() else "there are no cgroups"


def run(library: Path) -> bool:
    """Boot the machine with the stand-in `library` for the driver, and run the checks in it; whether all passed."""
    _sweep()
    with place() as folder, _cgroups(folder) as groups, _booted(folder, library, groups) as process:
        return follow(folder / "upper" / "checks.log", lambda: process.poll() is None)


@contextlib.contextmanager
def _booted(folder: Path, library: Path, groups: list[Path]) -> Iterator[subprocess.Popen[bytes]]:
    def join() -> None:
        for group in groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    command = ["unshare", "--mount", "--fork", "--kill-child", "bash", str(HERE / "boot.sh")]
    with (folder / "boot.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(folder), str(ROOT), str(library)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=join,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not (folder / "upper" / "checks.log").exists():
            print((folder / "boot.log").read_text(errors="replace"))


@contextlib.contextmanager
def _cgroups(folder: Path) -> Iterator[list[Path]]:
    """A cgroup of its own in every hierarchy; `hierarchies` says how the machine mounts them."""
    made: list[Path] = []
    lines = []
    try:
        for mountpoint, kind, options in _hierarchies():
            group = mountpoint / f"{PREFIX}{os.getpid()}"
            group.mkdir()
            made.append(group)
            _enable(mountpoint, group, kind)
            inside = mountpoint.relative_to(CGROUPS)
            lines.append(f"{inside} {kind} {options}\n")
        (folder / "hierarchies").write_text("".join(lines))
        yield made
    finally:
        for group in made:
            _remove(group)


def _enable(mountpoint: Path, group: Path, kind: str) -> None:
    if kind == "cgroup2":
        for controller in (mountpoint / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                (mountpoint / "cgroup.subtree_control").write_text(f"+{controller}")
    for name in ("cpuset.cpus", "cpuset.mems"):
        if kind == "cgroup" and (group / name).exists():
            (group / name).write_text((mountpoint / name).read_text())


def _hierarchies() -> list[tuple[Path, str, str]]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        mountpoint = Path(fields.split()[4])
        if kind in ("cgroup", "cgroup2") and mountpoint.is_relative_to(CGROUPS):
            wanted = [each for each in options.split(",") if each not in ("rw", "ro", "xattr", "nsdelegate")]
            wanted = [each for each in wanted if not each.startswith(("release_agent", "clone_children"))]
            named = ["none", *wanted] if any(each.startswith("name=") for each in wanted) else wanted
            found.append((mountpoint, kind, ",".join(named) if kind == "cgroup" else "defaults"))
    return found


def _remove(group: Path) -> None:
    """The group and all below it; its processes have just been killed and may take a moment to go."""
    for _ in range(100):
        for each in sorted(group.rglob("*"), reverse=True):
            if each.is_dir():
                with contextlib.suppress(OSError):
                    each.rmdir()
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return


def _sweep() -> None:
    """What a run that was killed outright left behind."""
    for group in CGROUPS.glob(f"**/{PREFIX}*"):
        if not alive(group.name):
            for procs in group.rglob("cgroup.procs"):
                for pid in procs.read_text().split():
                    with contextlib.suppress(ProcessLookupError, ValueError):
                        os.kill(int(pid), signal.SIGKILL)
            _remove(group)
