"""Completion for fish: one `complete` for each option and action, each with its help."""

from __future__ import annotations

from collections.abc import Iterator

from agent.lib.command_tree import ArgumentKind, CommandUsage, UsageArgument

HEAD = """\
# Completion of coldplate for fish: made by `coldplate render completion fish`.

function __coldplate_at --description 'Whether the command so far is this one'
    set -l at coldplate
    for word in (commandline -opc)[2..-1]
        contains -- "$at $word" {names}
        and set at "$at $word"
    end
    test "$at" = "$argv"
end

complete -c coldplate -f
"""


def write(tree: CommandUsage) -> str:
    """The script."""
    lines = list(_lines(tree))
    names = " ".join(_quoted(node.name) for node in _below(tree))
    return HEAD.format(names=names) + "\n".join(lines) + "\n"


def _below(node: CommandUsage) -> Iterator[CommandUsage]:
    for each in node.actions:
        yield each
        yield from _below(each)


def _lines(node: CommandUsage) -> Iterator[str]:
    here = f"complete -c coldplate -n {_quoted(f'__coldplate_at {node.name}')}"
    for action in node.actions:
        yield f"{here} -a {action.words[-1]} -d {_quoted(action.help)}"
    for option in node.options:
        flags = " ".join(f"-l {each[2:]}" if each.startswith("--") else f"-s {each[1:]}" for each in option.flags)
        yield f"{here} {flags}{_value(option)} -d {_quoted(option.help)}"
    for place in node.places:
        if place.words:
            yield f"{here} -a {_quoted(' '.join(place.words))}"
        elif place.takes in (ArgumentKind.FILE, ArgumentKind.DIRECTORY):
            yield f"{here} -F"
    for action in node.actions:
        yield from _lines(action)


def _value(option: UsageArgument) -> str:
    if option.takes is ArgumentKind.NOTHING:
        return ""
    if option.words:
        return f" -x -a {_quoted(' '.join(option.words))}"
    if option.takes is ArgumentKind.DIRECTORY:
        return " -x -a '(__fish_complete_directories)'"
    return " -r -F" if option.takes is ArgumentKind.FILE else " -x"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
