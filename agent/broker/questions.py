"""The broker's two questions and their answers, as they go over the socket, and all that may be asked.

Pure: bytes in, values out. A question is one message of fixed size. Its answer is one message that begins with the
question, so that an answer to another question is never taken for it; then an error number, 0 for none; then the
content, if there is any. The broker returns no environment variables but those that may describe a job, and sends one
IPMI request: Get Power Reading of the DCMI specification 1.5, section 6.6.1.
"""

import struct

NETFN_GROUP = 0x2C
GET_POWER_READING = 0x02
DCMI = 0xDC
REQUEST = bytes((DCMI, 0x01, 0x00, 0x00))  # system power statistics, no attributes, reserved
TIMEOUT_SECONDS = 1.5
"""Seconds. A controller answers within a few tenths; the kernel's driver itself gives up after 5."""


class IpmiDevice:
    """An open connection to the controller. Not a Protocol: importing typing costs the broker a megabyte."""

    def power_reading(self) -> bytes:
        """Return the controller's response, completion code first. Raises TimeoutError, or OSError from the device."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what is held, if anything is; may be called more than once."""


KEYS = frozenset(
    b"SLURM_JOB_ID SLURM_JOBID SLURM_JOB_SLUID SLURM_JOB_NAME SLURM_JOB_USER SLURM_JOB_ACCOUNT SLURM_JOB_PARTITION "
    b"SLURM_JOB_START_TIME SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_JOB_GPUS SLURM_STEP_GPUS "
    b"PBS_JOBID PBS_JOBNAME PBS_QUEUE "
    b"LSB_JOBID LSB_JOBINDEX LSB_JOBNAME LSB_QUEUE LSB_PROJECT_NAME "
    b"JOB_ID JOB_NAME QUEUE SGE_ROOT SGE_TASK_ID SGE_O_LOGNAME SGE_ACCOUNT "
    b"OAR_JOB_ID OAR_JOBID OAR_JOB_NAME OAR_PROJECT_NAME OAR_USER OAR_ARRAY_ID OAR_ARRAY_INDEX "
    b"FLUX_JOB_ID FLUX_JOB_ID_PATH _CONDOR_SLOT _CONDOR_SCRATCH_DIR "
    b"NOMAD_ALLOC_ID NOMAD_ALLOC_NAME NOMAD_JOB_NAME NOMAD_NAMESPACE NOMAD_DC "
    b"RAY_JOB_ID RAY_CLUSTER_NAME HOSTNAME".split()
)

OF_COMPONENT = b"_HET_GROUP_"
"""What Slurm puts between the name of a variable and the number of the job's component that it is about."""

LONGEST, MOST = 512, 128
"""Most bytes of a value, and most variables of one process."""


def job_variables(environ: bytes, keys: frozenset[bytes] = KEYS) -> dict[bytes, bytes]:
    """Return the variables of these names in a /proc/PID/environ; of equal ones the first counts, as for getenv."""
    variables: dict[bytes, bytes] = {}
    for entry in environ.split(b"\0"):
        key, _, value = entry.partition(b"=")
        name, component, number = key.partition(OF_COMPONENT)
        if (
            value
            and name in keys
            and (not component or (number.isdigit() and len(number) < 4))
            and len(variables) < MOST
        ):
            variables.setdefault(key, value[:LONGEST])
    return variables


def joined(variables: dict[bytes, bytes]) -> bytes:
    """Return variables in the form of a /proc/PID/environ."""
    return b"".join(b"%b=%b\0" % pair for pair in variables.items())


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
    """Return the question for the job variables of a process.

    Raises struct.error for numbers that no process can have.
    """
    return QUESTION.pack(VARIABLES, pid, started)


def ask_power() -> bytes:
    """Return the question for the power reading."""
    return QUESTION.pack(POWER, 0, 0)


def parse_question(message: bytes) -> tuple[bytes, int, int] | None:
    """Return what is asked, pid and start; None for anything but one of the two questions."""
    if len(message) != QUESTION.size:
        return None
    kind, pid, started = QUESTION.unpack(message)
    if kind == VARIABLES and 0 < pid <= LARGEST_PID:
        return kind, pid, started
    return (kind, 0, 0) if message == ask_power() else None


def answer_to(question: bytes, error: int, content: bytes = b"") -> bytes:
    """Return the answer to a question: an error number, or 0 and what was asked for."""
    return question + VERDICT.pack(error) + content


def parse_answer(question: bytes, message: bytes) -> tuple[int, bytes]:
    """Return error number and content. Raises ValueError if this is not an answer to the question."""
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
