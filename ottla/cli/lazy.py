"""A click group whose commands are imported when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_INTERRUPTED = 130

ONE_MEANING = {"-a": "--all", "-g": "--group", "-p": "--partition", "-s": "--separator", "-t": "--topic"}
"""Short flags that users try in commands without them, with the long flag that each has in all others."""


OTHER_NAMES = {
    **dict.fromkeys(("trim-prefix", "trim", "truncate", "purge"), "delete-records"),
    **dict.fromkeys(("remove", "rm"), "delete"),
    **dict.fromkeys(("ls", "show"), "list"),
    "info": "describe",
}
"""Names of commands in other tools, which their users try first."""


class LazyGroup(click.Group):
    """`commands_by_name`: name -> ("module:attribute", one line of help)."""

    def __init__(
        self, *args: Any, commands_by_name: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any
    ) -> None:  # those of click
        super().__init__(*args, **kwargs)
        self._by_name = dict(commands_by_name or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they were given."""
        return list(self._by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._by_name:
            return None
        module, _, attribute = self._by_name[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """As click's, but Ctrl-C ends the program quietly, with the status that shells know."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(EXIT_INTERRUPTED) from None
        except click.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):  # Ctrl-C at a question
                raise SystemExit(EXIT_INTERRUPTED) from None
            raise
        except click.NoSuchOption as error:
            meaning = ONE_MEANING.get(error.option_name)
            if meaning is None or ctx.parent is not None:
                raise
            message = f"No such option {error.option_name}: it is short for {meaning}, where that exists."
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands for `--help`, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in self._by_name.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions: names with their help, without importing a command, and options."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=help_line)
            for name, (_, help_line) in self._by_name.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, but `help COMMAND` is `COMMAND --help`, and an unknown name lists the known ones."""
        is_completing = ctx.resilient_parsing
        if args and args[0] == "help" and not is_completing:
            named = [word for word in args[1:] if not word.startswith("-")]
            if not named:
                click.echo(ctx.get_help(), color=ctx.color)
                ctx.exit()
            args = [*named, "--help"]
        if args and args[0] not in self._by_name and not args[0].startswith("-") and not is_completing:
            ctx.fail(self._no_such_command(args[0]))
        return super().resolve_command(ctx, args)

    def _no_such_command(self, name: str) -> str:
        import difflib  # only for a mistyped name

        other = OTHER_NAMES.get(name)
        near = [other] if other in self._by_name else difflib.get_close_matches(name, self._by_name, n=1, cutoff=0.5)
        meant = f": did you mean {near[0]}? There" if near else "; there"
        return f"there is no command {name!r}{meant} are {', '.join(self._by_name)}"
