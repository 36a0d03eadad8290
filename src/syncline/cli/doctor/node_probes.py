"""Probes of the nodes: actors on a cluster, plain calls on this machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syncline.cli.doctor.probe import NodeProbe
from syncline.core import api
from syncline.core.placement import NodeAffinitySchedulingStrategy


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Result or error of a call on a node."""

    value: Any = None
    error: str | None = None


Call = tuple[str, tuple[Any, ...]]
"""A method of `NodeProbe` and its arguments."""


class NodeProbes(ABC):
    """A probe on each node."""

    addresses: Mapping[str, str]
    """Address of each node for the other nodes, by name."""

    @abstractmethod
    def ask(self, calls: Mapping[str, Call], limit_s: float) -> dict[str, Answer]:
        """Call the probes concurrently and return the answers by node, within about `limit_s`.

        Failures are answers with an error.
        """


class ThisMachine(NodeProbes):
    """A probe in this process."""

    NAME = "this machine"

    def __init__(self) -> None:
        self.addresses = {self.NAME: "127.0.0.1"}
        self._probe = NodeProbe()

    def ask(self, calls: Mapping[str, Call], limit_s: float) -> dict[str, Answer]:
        """Call the probe."""
        return {name: self._answer(*call) for name, call in calls.items()}

    def _answer(self, method: str, arguments: tuple[object, ...]) -> Answer:
        try:
            return Answer(value=getattr(self._probe, method)(*arguments))
        except Exception as error:  # any error is a finding
            return Answer(error=first_line(error))


class Cluster(NodeProbes):
    """An actor on every living node of the cluster that syncline is connected to.

    Args:
        nodes: Result of `syncline.nodes()`.
    """

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        living = sorted(
            (node for node in nodes if node.get("Alive")),
            key=lambda node: (node["NodeManagerAddress"], node["NodeID"]),
        )
        names = node_names(living)
        self.addresses = {
            name: node["NodeManagerAddress"] for name, node in zip(names, living, strict=True)
        }
        probe: Any = api.remote(NodeProbe)
        self._probes = {
            name: probe.options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    node_id=node["NodeID"], soft=False
                ),
            ).remote()
            for name, node in zip(names, living, strict=True)
        }

    def ask(self, calls: Mapping[str, Call], limit_s: float) -> dict[str, Answer]:
        """Call the actors."""
        asked = {
            name: getattr(self._probes[name], method).remote(*arguments)
            for name, (method, arguments) in calls.items()
        }
        if not asked:
            return {}
        ready, _ = api.wait(list(asked.values()), num_returns=len(asked), timeout=limit_s)
        answered = set(ready)
        return {name: _answer(ref, ref in answered, limit_s) for name, ref in asked.items()}

    def close(self) -> None:
        """End the actors."""
        for probe in self._probes.values():
            api.kill(probe)


def _answer(ref: Any, ready: bool, limit_s: float) -> Answer:
    if not ready:
        return Answer(error=f"no answer within {limit_s:g} s")
    try:
        return Answer(value=api.get(ref))
    except Exception as error:  # any error is a finding
        return Answer(error=first_line(error))


def node_names(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return names for messages: address and host, with the start of the id if they are shared."""
    plain = [f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']})" for node in nodes]
    return [
        name
        if plain.count(name) == 1
        else f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']}, {node['NodeID'][:8]})"
        for name, node in zip(plain, nodes, strict=True)
    ]


def first_line(error: BaseException) -> str:
    """Return an error in one line; for a failed task, its own exception."""
    cause = getattr(error, "cause", None)
    shown = cause if isinstance(cause, BaseException) else error
    lines = [line for line in str(shown).splitlines() if line.strip()]
    return f"{type(shown).__name__}: {lines[0].strip()}" if lines else type(shown).__name__
