"""A program whose questions about an interface a stand-in answers in the kernel's place; see `redirect.c`."""

import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.fakes.nvml.build import compile_library

SOURCE = Path(__file__).with_name("redirect.c")
_ERROR = 2
_HEAD = struct.Struct("=IHHII")

Reply = Callable[[bytes], Sequence[bytes]]
"""From a question to the messages of its answer, with any sequence and port."""


def build(directory: Path) -> Path:
    """Compile the library that is preloaded. Raises FileNotFoundError without a compiler."""
    return compile_library(SOURCE, directory / "redirect.so", "-ldl")


class Redirected:
    """Runs programs with the library preloaded. Close it after the last one."""

    def __init__(self, library: Path, path: Path, device: str, reply: Reply) -> None:
        self._environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "COLDPLATE_NETLINK_DEVICE": device,
            "COLDPLATE_NETLINK_SOCKET": str(path),
        }
        self._reply = reply
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, name="redirected netlink", daemon=True).start()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60, check=False)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                asking, _ = self._listener.accept()
            except OSError:
                return
            with asking:
                while question := asking.recv(65536):
                    for message in self._answers(question):
                        asking.send(message)

    def _answers(self, question: bytes) -> Iterator[bytes]:
        """The messages with the question's sequence, and after an answer that it was the whole of it."""
        _, _, _, sequence, _ = _HEAD.unpack_from(question)
        kinds = []
        for message in self._reply(question):
            length, kind, flags, _, _ = _HEAD.unpack_from(message)
            kinds.append(kind)
            yield _HEAD.pack(length, kind, flags, sequence, 0) + message[_HEAD.size :]
        if _ERROR not in kinds:
            done = struct.pack("=i", 0) + question[: _HEAD.size]
            yield _HEAD.pack(_HEAD.size + len(done), _ERROR, 0, sequence, 0) + done
