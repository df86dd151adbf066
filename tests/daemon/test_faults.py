"""A configuration file that cannot be read, beside a daemon that serves; other faults are those of the drill."""

from __future__ import annotations

import errno
import os
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

FAST = "sampling: {fast: 250ms, slow: 1s, cold: 2s}\n"


def test_a_configuration_without_a_writer_costs_its_reload_and_not_the_port(start, tmp_path: Path) -> None:
    """A pipe where the file was: whoever opens it may wait for ever."""
    text = f"web: {{enable_lifecycle: true}}\nbackends: {{devices: none}}\n{FAST}"
    daemon = start(config=text)
    path = next(tmp_path.glob("*.yaml"))
    path.unlink()
    os.mkfifo(path)
    answers: list[int] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{daemon.url}/-/reload", b""), timeout=30).close()
            answers.append(200)
        except urllib.error.HTTPError as error:
            answers.append(error.code)
            error.close()

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(20):
        assert daemon.get("/-/healthy") == "healthy\n"
        assert daemon.page()
        time.sleep(0.05)
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO  # nobody waits for it: the reload was refused
    else:
        os.write(pipe, text.encode())
        os.close(pipe)
    asking.join(30)
    assert answers in ([200], [500])
    assert daemon.page()
