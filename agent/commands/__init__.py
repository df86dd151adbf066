"""The commands of `coldplate`: one file or folder for each, found by its name.

A command has `HELP` (a line), `DESCRIPTION` (with its exit statuses), `add_arguments(parser)`, and `run(arguments)`,
which returns the exit status. Every command is imported for the help, so large imports belong where they are used.
"""
