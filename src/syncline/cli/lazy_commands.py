"""`LazyCommands`: a group of commands whose modules are imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from syncline.suggestions import did_you_mean


class LazyCommands(click.Group):
    """A group that imports each subcommand on first use; listing the subcommands imports nothing.

    Args:
        package: Package of the modules.
        table: Module and help text of each subcommand. The function is named like the subcommand,
            with underscores and `_command` at the end.
        kwargs: Arguments of `click.Group`.
    """

    def __init__(
        self, *, package: str, table: Mapping[str, tuple[str, str]], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._package = package
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module = importlib.import_module(f"{self._package}.{self._table[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_") + "_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._table and args[0][:1] != "-" and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], self._table)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
