"""`debug`: attach this terminal to a worker that waits at a `breakpoint()`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from syncline.cli.output import CommandError, json_option, print_json
from syncline.core import control, debugger
from syncline.core.debug_terminal import attach


@click.command(name="debug")
@click.argument("worker", required=False)
@json_option
def debug_command(worker: str | None, as_json: bool) -> None:
    """Debug WORKER with pdb: a pid, or a label such as "rank 0"; by default the one that waits.

    `c` continues the worker and ends the command, Ctrl-D too; `q` raises BdbQuit in the worker.
    """
    found = [
        each
        for program in control.programs()
        for each in debugger.waiting(Path(program.socket).parent)
    ]
    chosen = [each for each in found if worker in (None, str(each["pid"]), each["label"])]
    if as_json:
        print_json({"workers": [{name: each[name] for name in _KEYS} for each in chosen]})
        return
    if len(chosen) != 1:
        raise CommandError(_problem(worker, found, chosen))
    try:
        attach(Path(chosen[0]["path"]))
    except ConnectionError as error:
        raise CommandError(str(error)) from error


_KEYS = ("pid", "label", "where")


def _problem(worker: str | None, found: list[Any], chosen: list[Any]) -> str:
    if not found:
        return (
            "no worker of this user on this machine waits in the debugger: call `breakpoint()` "
            "where it should wait"
        )
    listed = "".join(f"\n  {each['pid']}  {each['label']}  {each['where']}" for each in found)
    who = f"{len(chosen)} workers" if chosen else f"no worker {worker!r}"
    return f"{who} waits in the debugger; pass a pid or a label of these:{listed}".replace(
        "workers waits", "workers wait"
    )
