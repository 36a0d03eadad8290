"""Placement groups: resources that are reserved together.

group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
group.wait(10)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup, PlacementStrategy

__all__ = [
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
    **_ignored: Any,
) -> PlacementGroup:
    """Begin to reserve all `bundles` together, such as ``[{"CPU": 2}, {"GPU": 1}]``; `group.wait()`
    tells when they are reserved.

    `strategy`: PACK and STRICT_PACK put bundles on one machine (if possible; always), SPREAD and
    STRICT_SPREAD on different ones. `name`: for `get_placement_group`. `lifetime`: "detached"
    groups outlive the program where the engine does. ValueError for bundles that can never be
    reserved, TypeError for what are no bundles.
    """
    if (
        isinstance(bundles, Mapping)
        or not isinstance(bundles, Sequence)
        or not all(isinstance(bundle, Mapping) for bundle in bundles)
    ):
        raise TypeError(
            f"`bundles` must be a list of dicts such as [{{'CPU': 1}}], but is {bundles!r}."
        )
    if lifetime not in (None, "detached"):
        raise ValueError(
            f"`lifetime={lifetime!r}` of a placement group is unknown: pass 'detached' or leave it out."
        )
    specs = [dict(bundle) for bundle in bundles]
    group_id = ensure_engine().create_placement_group(
        specs, strategy=strategy, name=name, detached=lifetime == "detached"
    )
    return PlacementGroup(group_id, specs)


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Give the resources back and end what runs inside. Removing twice is allowed."""
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(
            f"`remove_placement_group` needs a placement group, but got {placement_group!r}: pass what `placement_group` made."
        )
    ensure_engine().remove_placement_group(int(placement_group.id))


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group with that name; ValueError where there is none."""
    if not placement_group_name:
        raise ValueError(
            "a placement group is looked up by its name, which cannot be empty: pass the `name` it was made with."
        )
    rows = ensure_engine().placement_groups()
    for row in rows:
        if row["name"] == placement_group_name and row["state"] != "REMOVED":
            return PlacementGroup(row["id"], row["bundles"])
    names = sorted(row["name"] for row in rows if row["name"] and row["state"] != "REMOVED")
    raise ValueError(
        f"no placement group is named {placement_group_name!r}; those with names are {names}."
    )


def get_current_placement_group() -> PlacementGroup | None:
    """The group that the calling task or actor runs in; None outside of any."""
    engine = ensure_engine()
    group_id = engine.facts().placement_group_id
    if group_id is None:
        return None
    bundles = [row["bundles"] for row in engine.placement_groups() if row["id"] == group_id]
    return PlacementGroup(group_id, bundles[0] if bundles else [])


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """State of one group, or of all by id: `placement_group_id`, `name`, `strategy`, `bundles`
    (amounts by index) and `state`.
    """
    table = {f"{row['id']:032x}": _row(row) for row in ensure_engine().placement_groups()}
    if placement_group is None:
        return table
    return table.get(placement_group.id.hex(), {})


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "placement_group_id": f"{row['id']:032x}",
        "name": row["name"],
        "strategy": row["strategy"],
        "bundles": dict(enumerate(row["bundles"])),
        "state": row["state"],
    }
