"""`graphopt completion`: a shell script that completes commands and options."""

from __future__ import annotations

import sys
from typing import Annotated

from graphopt.cli.arguments import Argument, Command, Option
from graphopt.errors import UsageError

_SHELLS = ("bash", "zsh", "fish")


def completion(
    shell: Annotated[str, Argument(metavar="SHELL", help=f"One of {', '.join(_SHELLS)}.")],
) -> None:
    """Print a script that completes commands and options in a shell. In bash: `source <(graphopt completion bash)`."""
    from graphopt.cli.app import COMMANDS

    if shell not in _SHELLS:
        raise UsageError(f"unknown shell {shell!r}; expected one of {', '.join(_SHELLS)}")
    commands = list(COMMANDS.values())
    sys.stdout.write(_fish(commands) if shell == "fish" else _bash(commands, zsh=shell == "zsh"))


def _bash(commands: list[Command], *, zsh: bool) -> str:
    cases = "".join(
        f"    '{command.name} '*) words='{' '.join(command.options)} --help'{_values(command)} ;;\n"
        for command in commands
    )
    return (
        ("autoload -Uz +X bashcompinit && bashcompinit\n" if zsh else "")
        + "_graphopt() {\n"
        + '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=\'\'\n'
        + '  case "${COMP_WORDS[1]} ${COMP_WORDS[2]} " in\n'
        + cases
        + "".join(f"    '{group} '*) words='{' '.join(inner)}' ;;\n" for group, inner in _groups(commands).items())
        + f"    *) words='{' '.join(dict.fromkeys(c.name.split()[0] for c in commands))} --help --version' ;;\n"
        + "  esac\n"
        + '  if [[ "$current" == -* || $COMP_CWORD -eq 1 || -n "$values" || "$words" != *--* ]]; then\n'
        + '    COMPREPLY=($(compgen -W "${values:-$words}" -- "$current")); unset values; return\n'
        + "  fi\n"
        + '  COMPREPLY=($(compgen -f -- "$current"))\n'
        + "}\ncomplete -o filenames -F _graphopt graphopt\n"
    )


def _groups(commands: list[Command]) -> dict[str, list[str]]:
    """For commands of two words, the second words by the first."""
    found: dict[str, list[str]] = {}
    for command in commands:
        group, _, word = command.name.rpartition(" ")
        if group:
            found.setdefault(group, []).append(word)
    return found


def _values(command: Command) -> str:
    """Cases that complete the values of options with choices."""
    offered = [
        f" {'|'.join(parameter.names)}) values='{' '.join(parameter.stated.choices)}' ;;"
        for parameter in command.parameters
        if isinstance(parameter.stated, Option) and parameter.stated.choices
    ]
    return f'; case "$before" in{"".join(offered)} esac' if offered else ""


def _fish(commands: list[Command]) -> str:
    names = " ".join(dict.fromkeys(command.name.split()[0] for command in commands))
    lines = []
    for command in commands:
        summary = command.text.partition(". ")[0].replace("'", "\\'")
        group, _, word = command.name.rpartition(" ")
        before = f"__fish_seen_subcommand_from {group}" if group else f"not __fish_seen_subcommand_from {names}"
        if group:
            lines.append(f"complete -c graphopt -n 'not __fish_seen_subcommand_from {names}' -a {group}")
        lines.append(f"complete -c graphopt -n '{before}' -a {word} -d '{summary}'")
        seen = "; and ".join(f"__fish_seen_subcommand_from {each}" for each in command.name.split())
        for parameter in command.parameters:
            long = [f"-l {name[2:]}" for name in parameter.names if name.startswith("--")]
            short = [f"-s {name[1:]}" for name in parameter.names if not name.startswith("--")]
            if not long:
                continue
            takes = [] if parameter.kind is bool else ["-r"]
            choices = parameter.stated.choices if isinstance(parameter.stated, Option) else ()
            takes += [f"-fa '{' '.join(choices)}'"] if choices else []
            told = parameter.stated.help.replace("'", "\\'")
            words = " ".join([*long, *short, *takes])
            lines.append(f"complete -c graphopt -n '{seen}' {words} -d '{told}'")
    return "\n".join(lines) + "\n"
