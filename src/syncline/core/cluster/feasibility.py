"""Pure checks of demands that a cluster can never satisfy, so that they fail instead of waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from syncline.core.labels import Nodes, Selector, has_labels, selectors_text
from syncline.core.resources import IMPLICIT_PREFIX
from syncline.suggestions import did_you_mean

_TOLERANCE = 1e-6

Amounts = Mapping[str, float]
NO_LABELS: Selector = {}


def check_demand(demand: Amounts, nodes: Nodes, what: str, *selectors: Selector) -> None:
    """Raise ValueError, with the amounts, if no single node can satisfy the demand.

    A node must also have the labels of one of the selectors. `what` names the demand in the
    message.
    """
    selectors = selectors or (NO_LABELS,)
    nodes = list(nodes)
    demand = {
        name: amount for name, amount in demand.items() if not name.startswith(IMPLICIT_PREFIX)
    }
    living = _living(
        node
        for node in nodes
        if any(has_labels(node.get("Labels", {}), selector) for selector in selectors)
    )
    if any(_fits(demand, node) for node in living):
        return
    labels = f" with the labels {selectors_text(selectors)}" if all(selectors) else ""
    if labels and not living:
        raise ValueError(
            f"{what} needs a node{labels}, but the cluster has none, so it could never start. "
            f"Use labels of its {len(_living(nodes))} nodes, which `syncline.nodes()` shows, or "
            f"add such a node."
        )
    most = {name: max((node.get(name, 0) for node in living), default=0) for name in demand}
    short = {
        name: amount for name, amount in demand.items() if amount > most[name] + _TOLERANCE
    } or dict(demand)
    together = "" if len(short) < len(demand) or len(demand) == 1 else " (or not all together)"
    raise ValueError(
        f"{what} needs {_shown(short)}, but of the {len(living)} nodes of the cluster{labels} "
        f"none has more than {_shown({name: most[name] for name in short})}{together}, so it could "
        f"never start. Request less, or add a larger node to the cluster."
        f"{_nearest(short, living)}"
    )


def check_bundles(
    bundles: Sequence[Amounts], strategy: str, nodes: Nodes, selectors: Sequence[Selector] = ()
) -> None:
    """Raise ValueError if a placement group is infeasible on these nodes.

    `selectors` has the labels of the node of each bundle; empty: any node.
    """
    nodes = list(nodes)
    for number, bundle in enumerate(bundles):
        what = f"bundle {number} of the placement group"
        check_demand(bundle, nodes, what, *selectors[number : number + 1])
    living = _living(nodes)
    if strategy == "STRICT_SPREAD" and len(bundles) > len(living):
        raise ValueError(
            f"STRICT_SPREAD puts each of {len(bundles)} bundles on its own node, but the cluster "
            f"has {len(living)}: use SPREAD, fewer bundles, or add nodes"
        )
    together = _sum(bundles)
    if strategy == "STRICT_PACK":
        check_demand(together, nodes, "the placement group (STRICT_PACK: all bundles on one node)")
    there = _sum(living)
    short = {
        name: amount
        for name, amount in together.items()
        if amount > there.get(name, 0) + _TOLERANCE
    }
    if short:
        raise ValueError(
            f"the placement group needs {_shown(short)} in total, but the cluster has "
            f"{_shown({n: there.get(n, 0) for n in short})}, so it could never start. "
            f"Request less, or add nodes.{_nearest(short, living)}"
        )


def _nearest(short: Amounts, nodes: Sequence[Amounts]) -> str:
    """Return a hint at the name of an existing resource if `short` has one that no node has."""
    existing = {name for node in nodes for name, amount in node.items() if amount}
    unknown = [name for name in short if name not in existing]
    return did_you_mean(unknown[0], existing) if unknown else ""


def _living(nodes: Nodes) -> list[Amounts]:
    return [node["Resources"] for node in nodes if node["Alive"]]


def _fits(demand: Amounts, node: Amounts) -> bool:
    return all(amount <= node.get(name, 0) + _TOLERANCE for name, amount in demand.items())


def _sum(parts: Iterable[Amounts]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _shown(amounts: Amounts) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(amounts.items()))
