"""Completion for bash. It needs no library of functions: bash-completion loads it, and `source` does as well."""

from __future__ import annotations

from collections.abc import Iterator

from agent.lib.command_tree import ArgumentKind, CommandUsage, UsageArgument

SCRIPT = """\
# Completion of coldplate for bash: made by `coldplate render completion bash`.

_coldplate_words() {{ mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }}

_coldplate_paths() {{
    mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
    compopt -o filenames 2>/dev/null
}}

_coldplate() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} at=coldplate i
    # `=` is a word of its own between an option and its value.
    if [[ $cur == '=' ]]; then
        cur=''
    elif [[ $before == '=' ]]; then
        before=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
{commands}
        esac
    done
    COMPREPLY=()
    case "$at $before" in
{values}
    esac
    case "$at" in
{rest}
    esac
}}

complete -F _coldplate coldplate
"""


def write(tree: CommandUsage) -> str:
    """The script."""
    nodes = list(_nodes(tree))
    names = [node.name for node in nodes[1:]]
    return SCRIPT.format(
        commands=f'        {_pattern(names)}) at="$at ${{COMP_WORDS[i]}}" ;;',
        values="\n".join(line for node in nodes for line in _values(node)),
        rest="\n".join(_rest(node) for node in nodes),
    )


def _nodes(node: CommandUsage) -> Iterator[CommandUsage]:
    yield node
    for each in node.actions:
        yield from _nodes(each)


def _pattern(texts: list[str]) -> str:
    return " | ".join(f"'{text}'" for text in texts)


def _values(node: CommandUsage) -> Iterator[str]:
    for option in node.options:
        if option.takes is not ArgumentKind.NOTHING:
            pattern = _pattern([f"{node.name} {flag}" for flag in option.flags])
            yield f"    {pattern}) {_completer(option)}return ;;"


def _completer(argument: UsageArgument) -> str:
    """What completes a value; nothing where only its writer knows it."""
    if argument.words:
        return f"_coldplate_words '{' '.join(argument.words)}'; "
    return {ArgumentKind.FILE: "_coldplate_paths -f; ", ArgumentKind.DIRECTORY: "_coldplate_paths -d; "}.get(
        argument.takes, ""
    )


def _rest(node: CommandUsage) -> str:
    """Options where a dash was written, else actions or what stands in its place."""
    flags = " ".join(flag for option in node.options for flag in option.flags)
    words = " ".join([each.words[-1] for each in node.actions] or [word for each in node.places for word in each.words])
    other = next((_completer(each) for each in node.places if not each.words), "")
    here = f"_coldplate_words '{words}'" if words else other.rstrip("; ") or ":"
    return f"    '{node.name}') if [[ $cur == -* ]]; then _coldplate_words '{flags}'; else {here}; fi ;;"
