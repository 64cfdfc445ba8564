"""A click group whose further commands live in modules of their own, imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from traces.errors import did_you_mean


class LazyGroup(click.Group):
    """A group with commands that are imported on use.

    `lazy` maps a command's name to its module, which holds it under that name, and to the text of the list in
    `--help`. Other rooms add theirs: the table is open.
    """

    def __init__(self, *arguments: Any, lazy: dict[str, tuple[str, str]], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported now if it lives elsewhere."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(self.lazy[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        rows = {name: text for name, (_, text) in self.lazy.items()}
        rows |= {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command; an unknown one is an error that suggests the nearest."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            hint = did_you_mean(args[0], known)
            raise click.UsageError(f'no command "{args[0]}"{hint}; see {ctx.command_path} --help')
        return super().resolve_command(ctx, args)
