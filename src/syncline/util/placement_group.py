"""Placement groups: bundles of resources that are reserved together.

`group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK"); group.wait(10)`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from syncline.core import option_checks as check
from syncline.core.engine import Row
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PLACEMENT_STRATEGIES, PlacementGroup, PlacementStrategy

VALID_PLACEMENT_GROUP_STRATEGIES = frozenset(PLACEMENT_STRATEGIES)

__all__ = [
    "VALID_PLACEMENT_GROUP_STRATEGIES",
    "PlacementGroup",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]


def placement_group(
    bundles: Sequence[Mapping[str, float]],
    strategy: PlacementStrategy = "PACK",
    name: str = "",
    lifetime: Literal["detached"] | None = None,
    bundle_label_selector: Sequence[Mapping[str, str]] | None = None,
    **_ignored: object,
) -> PlacementGroup:
    """Start to reserve all `bundles` together, such as ``[{"CPU": 2}, {"GPU": 1}]``.

    `group.wait()` waits until they are reserved. Bundles that the machine or cluster cannot hold
    wait for more resources, with a warning.

    Args:
        bundles: Resources of each bundle.
        strategy: PACK and STRICT_PACK place the bundles on one node, if possible or always; SPREAD
            and STRICT_SPREAD place them on different nodes.
        name: Name for `get_placement_group`.
        lifetime: "detached" groups outlive the program if the engine does.
        bundle_label_selector: Labels that the node of each bundle must have.

    Raises:
        ValueError: The bundles are invalid or reserve nothing, or no node has their labels.
    """
    if (
        isinstance(bundles, Mapping)
        or not isinstance(bundles, Sequence)
        or not all(isinstance(bundle, Mapping) for bundle in bundles)
    ):
        raise ValueError(
            f"`bundles` must be a list of dicts such as [{{'CPU': 1}}], but it is {bundles!r}."
        )
    if lifetime not in (None, "detached"):
        raise ValueError(
            f"`lifetime={lifetime!r}` of a placement group is unknown: pass 'detached' or omit it."
        )
    specs = [dict(bundle) for bundle in bundles]
    selectors = bundle_label_selector or []
    check.bundle_labels("bundle_label_selector", selectors, len(specs))
    group_id = ensure_engine().create_placement_group(
        specs,
        strategy=strategy,
        name=name,
        detached=lifetime == "detached",
        label_selectors=selectors,
        may_wait=True,
    )
    return PlacementGroup(group_id, specs)


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Release the bundles and end the tasks and actors in them. Repeated calls do nothing."""
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(
            f"`remove_placement_group` got {placement_group!r}: pass the result of "
            "`placement_group`."
        )
    ensure_engine().remove_placement_group(int(placement_group.id))


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """Return the group with that name. Raises ValueError if there is none."""
    if not placement_group_name:
        raise ValueError(
            "`placement_group_name` is empty: pass the `name` that the placement group was "
            "created with."
        )
    rows = ensure_engine().placement_groups()
    for row in rows:
        if row["name"] == placement_group_name and row["state"] != "REMOVED":
            return PlacementGroup(row["id"], row["bundles"])
    names = sorted(row["name"] for row in rows if row["name"] and row["state"] != "REMOVED")
    raise ValueError(
        f"No placement group is named {placement_group_name!r}. Named groups: {names}."
    )


def get_current_placement_group() -> PlacementGroup | None:
    """Return the placement group of the calling task or actor; None outside of one."""
    engine = ensure_engine()
    group_id = engine.runtime_info().placement_group_id
    if group_id is None:
        return None
    bundles = [row["bundles"] for row in engine.placement_groups() if row["id"] == group_id]
    return PlacementGroup(group_id, bundles[0] if bundles else [])


def placement_group_table(placement_group: PlacementGroup | None = None) -> Row:
    """Return the state of one group, or of all groups by id.

    Keys: `placement_group_id`, `name`, `strategy`, `bundles` (resources by index),
    `bundles_to_node_id` (empty text while a bundle is not reserved), `state`, `stats`.
    """
    table = {f"{row['id']:032x}": _row(row) for row in ensure_engine().placement_groups()}
    if placement_group is None:
        return table
    return table.get(placement_group.id.hex(), {})


def _row(row: Row) -> Row:
    return {
        "placement_group_id": f"{row['id']:032x}",
        "name": row["name"],
        "strategy": row["strategy"],
        "bundles": dict(enumerate(row["bundles"])),
        "bundles_to_node_id": dict(enumerate(row["nodes"])),
        "state": row["state"],
        "stats": dict(row["stats"]),
    }
