"""What a stranger does with a checkout: `make run` and a look at its page, `make test`, and both again with no network.

Runs under the Python that is tried, with its standard library alone; writes OUT/result.json beside pytest's own report.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

OUT = Path(sys.argv[1])
TESTS = sys.argv[2]


def ordinary_port_is_free() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", 19400)) != 0


def try_run() -> str:
    """What is wrong with `make run`, or nothing. Roots share the machine's network, and with it the ordinary port."""
    if ordinary_port_is_free():
        wrong = try_run_with([])
        if not wrong or ordinary_port_is_free():
            return wrong
    return try_run_with(["ARGS=--web.listen-address 127.0.0.1:0"])


def try_run_with(ask: list[str]) -> str:
    log = OUT / "run.log"
    command = ["make", "run", *ask]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        for _ in range(3600):
            said = log.read_text(errors="replace")
            url = re.search(r"msg=serving url=(\S+)", said)
            if url:
                break
            if process.poll() is not None:
                return f"make run ended with exit status {process.returncode}: {said.strip().splitlines()[-1:]}"
            time.sleep(0.25)
        else:
            return "make run does not serve within 15 minutes"
        missing = [word for word in ("No NVIDIA driver here", "SYNTHETIC devices") if word not in said]
        if missing:
            return f"make run does not say {missing}"
        time.sleep(5)
        page = urllib.request.urlopen(url[1].replace("nameless", "localhost"), timeout=10).read().decode()
        wanted = ("coldplate_build_info", "coldplate_gpu_up", "coldplate_node_power_watts")
        lacking = [name for name in wanted if f"\n{name}" not in page]
        return f"the page lacks {lacking}" if lacking else ""
    except OSError as error:
        return f"make run's page: {error}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def try_again() -> str:
    """With a network that leads nowhere: all is there, and nothing is said."""
    closed = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        ["make", ".venv/run.stamp", ".venv/dev.stamp", "programs"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **closed},
    )
    said = done.stdout + done.stderr
    if said or done.returncode:
        return f"a second make does or says something (exit status {done.returncode}): {said.strip()}"
    return ""


def test() -> int:
    with (OUT / "test.log").open("wb") as log:
        command = ["make", "test", f"ARGS=-q --junit-xml={OUT}/junit.xml {TESTS}"]
        return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode


def megabytes(folder: Path) -> int:
    return sum(each.lstat().st_blocks for each in folder.rglob("*")) * 512 // 1_000_000


def main() -> None:
    result: dict[str, object] = {"python": sys.version.split()[0], "run": try_run()}
    began = time.monotonic()
    with (OUT / "set-up.log").open("wb") as log:
        command = ["make", ".venv/dev.stamp", "programs"]
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    result["set_up_seconds"] = time.monotonic() - began
    result["megabytes"] = {name: megabytes(Path(name)) for name in (".venv", ".programs")}
    began = time.monotonic()
    result["status"] = test()
    result["seconds"] = time.monotonic() - began
    command = [".venv/bin/python", "-Ic", "import sys; print(sys.version.split()[0])"]
    version = subprocess.run(command, capture_output=True, text=True, check=False)
    result["python"] = version.stdout.strip() or result["python"]
    result["again"] = try_again()
    (OUT / "result.json").write_text(json.dumps(result))


main()
