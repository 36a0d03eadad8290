"""How commands get hold of a run that goes on: `reached`, and what is said where that is
impossible.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from syncline.cli import engines
from syncline.cli.output import CommandError
from syncline.dashboard.live import ActionFailed, LiveRun, NobodyAnswers, reach
from syncline.runs import Run


@contextmanager
def reached(run: Run, address: str | None) -> Iterator[LiveRun]:
    """The running side of a run, until the block ends: on this machine, or on the cluster at
    `address`, or on the one that runs here.

    CommandError where there is none, with what to do; and for what its program answers with an
    error inside the block.
    """
    if run.state != "running":
        raise CommandError(
            f"{run.path} is {run.state}: only a run that goes on can be looked into. `syncline logs` shows what it printed"
        )
    with ExitStack() as stack:
        live = reach(run)
        if live is None:
            address = engines.chosen_address(address)
            if stack.enter_context(engines.cluster_if_any(address)):
                live = reach(run)
        if live is None:
            raise CommandError(_not_found(run, address))
        try:
            yield live
        except (ActionFailed, NobodyAnswers) as error:
            raise CommandError(str(error)) from error


def _not_found(run: Run, address: str | None) -> str:
    host, pid = run.environment.get("hostname"), run.environment.get("pid")
    if address is not None:
        return f"{run.path} is not under way on the cluster at {address}, and no program of this user on this machine answers for it"
    if run.kind == "data":
        return f"{run.path} is the record of a dataset alone: it has no workers to be looked into"
    if host != socket.gethostname():
        return (
            f"no program on this machine answers for {run.path}: it was started on {host}. Run this command there, or, if it trains on a "
            "cluster, give --address"
        )
    return (
        f"no program answers for {run.path}, which process {pid} of this machine has started: it is only just starting or ending, is "
        "another user's, has another SYNCLINE_TMPDIR, or trains on a cluster (give --address)"
    )
