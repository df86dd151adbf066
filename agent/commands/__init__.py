"""The commands of `coldplate`: one file or folder for each, found by being here under its name.

A command has `HELP` (a line), `DESCRIPTION` (with its exit statuses), `add_arguments(parser)`, and `run(arguments)`,
which gives the exit status. Every command is imported to make the help, so they import what is large where they use it.
"""
