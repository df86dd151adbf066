"""A baseboard management controller for an emulated machine: it answers whatever its kernel asks over IPMI.

QEMU's ipmi-bmc-extern speaks OpenIPMI's "VM" protocol to it: a number, network function and command, data and a sum
that makes all bytes add up to 0, with the bytes that end messages and commands escaped (hw/ipmi/ipmi_bmc_extern.c).
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path

MESSAGE_END, COMMAND_END, ESCAPE = 0xA0, 0xA1, 0xAA
WATTS = 7350
"""What the machine is said to draw."""

OK, UNKNOWN = 0x00, 0xC1
DEVICE_ID = bytes((OK, 0x20, 0x01, 0x01, 0x00, 0x02, 0x80, 0, 0, 0, 0, 0))
"""Get Device ID: IPMI 2.0, nothing besides (IPMI 2.0, section 20.1)."""
POWER = bytes((OK, 0xDC)) + b"".join(value.to_bytes(2, "little") for value in (WATTS, 2000, 9000, 6000))
POWER += (1_700_000_000).to_bytes(4, "little") + (5000).to_bytes(4, "little") + b"\x40"
ANSWERS = {(0x06, 0x01): DEVICE_ID, (0x06, 0x2E): bytes((OK,)), (0x06, 0x2F): bytes((OK, 0x08)),
           (0x06, 0x30): bytes((OK,)), (0x06, 0x31): bytes((OK, 0x00)), (0x2C, 0x02): POWER}  # fmt: skip
"""By network function and command; Get Power Reading (DCMI 1.5, section 6.6.1) is the last."""


def answer(message: bytes) -> bytes:
    """The answer to a message that came whole, both without escapes and end."""
    number, function, command = message[0], message[1] >> 2, message[2]
    body = bytes((number, message[1] | 0x04, command)) + ANSWERS.get((function, command), bytes((UNKNOWN,)))
    return body + bytes((-sum(body) & 0xFF,))


def escaped(message: bytes) -> bytes:
    out = bytearray()
    for byte in message:
        out += bytes((ESCAPE, byte | 0x10)) if byte in (MESSAGE_END, COMMAND_END, ESCAPE) else bytes((byte,))
    return bytes(out) + bytes((MESSAGE_END,))


class Bmc:
    """Connects to QEMU's socket, which must be there within ten seconds. `asked` counts the readings that it gave.

    QEMU 7.2 crashes where the connection is there before the interface that it belongs to: so it is QEMU that listens.
    """

    def __init__(self, path: Path) -> None:
        self.asked = 0
        for _ in range(100):
            if path.exists():
                break
            time.sleep(0.1)
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(path))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._connection, contextlib.suppress(OSError):
            self._converse(self._connection)

    def _converse(self, connection: socket.socket) -> None:
        held, escape = bytearray(), False
        while data := connection.recv(4096):
            for byte in data:
                if byte == ESCAPE:
                    escape = True
                elif byte == COMMAND_END:  # version and capabilities: nothing to say to them
                    held.clear()
                elif byte == MESSAGE_END:
                    if len(held) >= 4 and sum(held) & 0xFF == 0:
                        self.asked += held[1] >> 2 == 0x2C
                        connection.sendall(escaped(answer(bytes(held))))
                    held.clear()
                else:
                    held.append(byte & ~0x10 if escape else byte)
                    escape = False
