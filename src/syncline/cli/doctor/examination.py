"""Examination of all nodes: asks the probes in the order in which questions depend on answers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from syncline.cli.doctor.findings import Examination, GlooFacts, Link, NodeFacts, Skew, StorageFacts
from syncline.cli.doctor.node_probes import NodeProbes
from syncline.cli.doctor.probe import NodeProbe

START_S = 120.0
"""Seconds that a node may take to start the probe and import torch."""
CLOCK_ROUNDS = 5
"""Number of clock readings; the fastest one counts."""


def examine(
    team: NodeProbes,
    *,
    storage_path: str,
    limit_s: float,
    cluster: str | None,
    dead: Sequence[str] = (),
) -> Examination:
    """Collect all findings.

    Args:
        team: Probes of the nodes.
        storage_path: Parent directory or URI of the runs.
        limit_s: Seconds for one connection, one file, one all-reduce.
        cluster: Address of the cluster; None for this machine only. This process runs on none of
            its nodes, so its versions are checked too.
        dead: Names of nodes that the cluster has lost.
    """
    started = team.ask(dict.fromkeys(team.addresses, ("facts", ())), START_S)
    silent = {name: answer.error for name, answer in started.items() if answer.error is not None}
    nodes: dict[str, NodeFacts] = {
        name: answer.value for name, answer in started.items() if answer.error is None
    }
    names = list(nodes)
    return Examination(
        cluster=cluster,
        nodes=nodes,
        silent=silent,
        dead=dead,
        driver=NodeProbe().facts() if cluster is not None else None,
        skews={name: clock_skew(team, name, limit_s) for name in names}
        if cluster is not None
        else {},
        links=links(team, names, limit_s),
        gloo=gloo(team, names, limit_s)
        if names and all(nodes[name].torch is not None for name in names)
        else None,
        storage=storage(team, names, storage_path, limit_s) if names else None,
    )


def clock_skew(team: NodeProbes, name: str, limit_s: float) -> Skew:
    """Measure the offset of the node's clock by the fastest of several readings."""
    best = Skew(seconds=0.0, uncertain_s=float("inf"))
    for _ in range(CLOCK_ROUNDS):
        asked = time.time()
        answer = team.ask({name: ("clock", ())}, limit_s)[name]
        half_s = (time.time() - asked) / 2
        if answer.error is None and half_s < best.uncertain_s:
            best = Skew(seconds=answer.value - asked - half_s, uncertain_s=half_s)
    return best


def links(team: NodeProbes, names: Sequence[str], limit_s: float) -> list[Link]:
    """Connect every node to every other one."""
    if len(names) < 2:
        return []
    listening = team.ask({name: ("listen", (team.addresses[name],)) for name in names}, limit_s)
    made: list[Link] = []
    targets: dict[str, tuple[str, int, bytes]] = {}
    for name, answer in listening.items():
        if answer.error is None:
            targets[name] = (team.addresses[name], *answer.value)
        else:
            reason = f"it cannot listen on its own address {team.addresses[name]}: {answer.error}"
            made += [
                Link(source=other, target=name, error=reason) for other in names if other != name
            ]
    others = {
        name: {target: where for target, where in targets.items() if target != name}
        for name in names
    }
    answers = team.ask({name: ("reach", (others[name], limit_s)) for name in names}, 3 * limit_s)
    for name, answer in answers.items():
        reached: Mapping[str, str | None] = (
            answer.value if answer.error is None else dict.fromkeys(others[name], answer.error)
        )
        made += [Link(source=name, target=target, error=error) for target, error in reached.items()]
    return made


def gloo(team: NodeProbes, names: Sequence[str], limit_s: float) -> GlooFacts:
    """Run an all-reduce over all nodes; the first node hosts the rendezvous."""
    began = time.monotonic()
    first = names[0]
    opened = team.ask(
        {first: ("open_rendezvous", (team.addresses[first], len(names), limit_s))}, limit_s
    )[first]
    if opened.error is not None:
        error = f"it cannot listen on its own address {team.addresses[first]}: {opened.error}"
        return GlooFacts(seconds=0.0, errors={first: error})
    master = (team.addresses[first], opened.value)
    calls: dict[str, tuple[str, tuple[Any, ...]]] = {
        name: ("all_reduce", (rank, len(names), master, team.addresses[name], limit_s))
        for rank, name in enumerate(names)
    }
    answers = team.ask(calls, 3 * limit_s)
    errors = {name: answer.error for name, answer in answers.items() if answer.error is not None}
    seconds = max(
        (answer.value for answer in answers.values() if answer.error is None),
        default=time.monotonic() - began,
    )
    return GlooFacts(seconds=seconds, errors=errors)


def storage(team: NodeProbes, names: Sequence[str], path: str, limit_s: float) -> StorageFacts:
    """Write a file on the first node and read it on all."""
    writer, text = names[0], secrets.token_hex(8)
    written = team.ask({writer: ("write", (path, text))}, limit_s)[writer]
    if written.error is not None:
        return StorageFacts(path=path, writer=writer, write_error=written.error, unseen={})
    answers = team.ask(dict.fromkeys(names, ("read", (path, written.value))), limit_s)
    team.ask({writer: ("remove", (path, written.value))}, limit_s)
    unseen = {
        name: answer.error or "it reads other content"
        for name, answer in answers.items()
        if answer.error or answer.value != text
    }
    return StorageFacts(path=path, writer=writer, write_error=None, unseen=unseen)
