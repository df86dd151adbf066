"""The commands of `coldplate`: one file or folder for each, found by its name.

A command has

* `HELP`, a line without a capital and a full stop, and `DESCRIPTION`, sentences;
* `EXAMPLES`, pairs of a whole command line and what it is for;
* `EXIT_STATUSES`, the meaning of each status, mostly `{0: ..., 1: ..., **INVALID}` (agent/lib/commandline.py);
* `add_arguments(parser)`, and `run(arguments)`, which returns the exit status;
* its place in `TASKS` below, which the help lists it under.

A command of several actions adds them with `parser.add_subparsers().add_parser(...)`, which takes `examples` and
`exit_statuses`. The help, the manual page and the completion of shells are made of these.

Every command is imported for the help, which must cost next to nothing: what a command does its work with it imports
in the functions that use it.
"""

TASKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("see what the node does", ("top", "once", "report")),
    ("find out what is wrong", ("check", "doctor")),
    ("run the agent", ("run", "pause", "simulate")),
    ("record, and use recordings elsewhere", ("record", "export", "import")),
    ("write and test rules and dashboards", ("rules", "compat-check", "render")),
)
"""The commands by what a user wants to do, in the order of the help; `OTHER` has the rest."""
OTHER = "help"
