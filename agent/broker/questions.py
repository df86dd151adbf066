"""The two questions and their answers, as they go over the socket. Pure: bytes in, values out.

A question is one message of fixed size. Its answer is one message that begins with the question, so that an answer
to another question is never taken for it; then an error number, 0 for none; then the content, if there is any.
"""

from __future__ import annotations

import struct

VARIABLES, POWER = b"job1", b"pwr1"
"""The job variables of a process, and the power reading of the management controller."""

QUESTION = struct.Struct("!4sIQ")
"""The question; for variables the process and when it was started, in clock ticks after boot, else zeros."""
VERDICT = struct.Struct("!I")

LONGEST_ANSWER = 80 * 1024
"""Most bytes of an answer: more than the most variables at their longest."""
LARGEST_ERROR = 4095
"""MAX_ERRNO of the kernel."""
LARGEST_PID = 2**22
"""PID_MAX_LIMIT of the kernel."""


def ask_variables(pid: int, started: int) -> bytes:
    """The question for the job variables of a process. Raises struct.error for numbers that no process can have."""
    return QUESTION.pack(VARIABLES, pid, started)


def ask_power() -> bytes:
    """The question for the power reading."""
    return QUESTION.pack(POWER, 0, 0)


def parse_question(message: bytes) -> tuple[bytes, int, int] | None:
    """What is asked, pid and start; None for anything but one of the two questions."""
    if len(message) != QUESTION.size:
        return None
    what, pid, started = QUESTION.unpack(message)
    if what == VARIABLES and 0 < pid <= LARGEST_PID:
        return what, pid, started
    return (what, 0, 0) if message == ask_power() else None


def answer_to(question: bytes, error: int, content: bytes = b"") -> bytes:
    """The answer to a question: an error number, or 0 and what was asked for."""
    return question + VERDICT.pack(error) + content


def parse_answer(question: bytes, message: bytes) -> tuple[int, bytes]:
    """Error number and content. Raises ValueError if this is not an answer to the question."""
    if not message:
        raise ValueError("closed without an answer: the broker answers only root and the owner of its socket")
    begin = len(question) + VERDICT.size
    if len(message) < begin or not message.startswith(question):
        raise ValueError(f"{len(message)} bytes that do not answer the request")
    if len(message) > LONGEST_ANSWER:
        raise ValueError(f"an answer of more than {LONGEST_ANSWER} bytes")
    (error,) = VERDICT.unpack_from(message, len(question))
    if error > LARGEST_ERROR:
        raise ValueError(f"error number {error}")
    return error, message[begin:]
