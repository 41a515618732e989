"""`ottla completion`: the script by which a shell completes commands, options, topics, groups and keys.

It is click's script, except for bash, which splits words at `:` and `=`: `-b 127.0.0.1:9092` and `--set retention.ms=`
are joined again from the whole line, and no blank follows a `KEY=`, whose value is typed next.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

SHELLS = ("bash", "zsh", "fish")

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response type value completion

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD COMP_LINE="$COMP_LINE" \\
        COMP_POINT="$COMP_POINT" COMP_WORDBREAKS="$COMP_WORDBREAKS" %(complete_var)s=bash_complete $1)

    for completion in $response; do
        IFS=',' read type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$value")
        fi
    done
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""


class Bash(BashComplete):
    """See the module."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is typed, and that one; read from the whole line if bash passes it."""
        line = os.environ.get("COMP_LINE", "")
        if not line:
            return super().get_completion_args()
        point = os.environ.get("COMP_POINT", "")
        line = line[: int(point)] if point.isdecimal() else line
        words = split_arg_string(line)
        program = next(iter(split_arg_string(os.environ["COMP_WORDS"])), "")
        words = words[words.index(program) + 1 :] if program in words else words[1:]
        if line[-1:].isspace() or not words:
            return words, ""
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """The replacement of the last of bash's words, which may be only the end of the completed word."""
        _, incomplete = self.get_completion_args()
        value = str(item.value)
        begin = max((incomplete.rfind(one) for one in "=:" if one in os.environ.get("COMP_WORDBREAKS", "")), default=-1)
        if value.startswith(incomplete[: begin + 1]):
            value = value[begin + 1 :]
        return f"{item.type},{value}"


add_completion_class(Bash)


@click.command(short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script by which SHELL completes the commands and options of ottla, topics, groups and keys.

    Topics and groups are asked of the broker that the line names with --bootstrap-server (localhost:9092), within a
    second.

    \b
    bash   eval "$(ottla completion bash)"     in ~/.bashrc
    zsh    eval "$(ottla completion zsh)"      in ~/.zshrc
    fish   ottla completion fish > ~/.config/fish/completions/ottla.fish
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None  # click knows every shell in SHELLS
    # Without the class's check of the installed bash: the script may be for another machine.
    maker = kind(root, {}, "ottla", "_OTTLA_COMPLETE")
    click.echo(maker.source_template % maker.source_vars())
