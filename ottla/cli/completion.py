"""`ottla completion`: the script by which a shell completes commands and options, as click makes it."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script by which SHELL completes the commands and options of ottla.

    \b
    bash   eval "$(ottla completion bash)"     in ~/.bashrc
    zsh    eval "$(ottla completion zsh)"      in ~/.zshrc
    fish   ottla completion fish > ~/.config/fish/completions/ottla.fish
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None  # click knows every shell in SHELLS
    # Not through the class's own check of the installed bash: what is printed may be for another machine.
    maker = kind(root, {}, "ottla", "_OTTLA_COMPLETE")
    click.echo(maker.source_template % maker.source_vars())
