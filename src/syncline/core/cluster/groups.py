"""Placement groups on Ray: made, awaited, removed and listed, and what has no group any more told
at once instead of waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from syncline.core.cluster import arguments, feasible
from syncline.core.cluster.handles import ReadyRef
from syncline.core.ids import Id

_STATES = {"PREPARED": "PENDING", "RESCHEDULING": "PENDING"}
"""Ray's states that are none of ours: bundles are being reserved, for the first time or once
more.
"""


@dataclass(frozen=True, kw_only=True)
class GroupStatistics:
    """What this process knows of groups."""

    removed: int
    """Groups that it removed."""


class Groups:
    """The cluster's placement groups. Thread safe."""

    def __init__(self, *, may_grow: Callable[[], bool]) -> None:
        self._may_grow = may_grow
        self._removed: set[int] = set()

    def create(
        self, bundles: Sequence[Mapping[str, float]], *, strategy: str, name: str, detached: bool
    ) -> int:
        """See `Engine.create_placement_group`."""
        feasible.check_description(bundles, strategy)
        if not self._may_grow():
            feasible.check_bundles(bundles, strategy, ray.nodes())
        specs = [
            {resource: amount for resource, amount in bundle.items() if amount}
            for bundle in bundles
        ]
        group = ray.util.placement_group(
            specs, strategy=strategy, name=name, lifetime="detached" if detached else None
        )
        return arguments.group_number(group)

    def ready(self, group_id: int) -> ReadyRef:
        """See `Engine.placement_group_ready`."""
        return ReadyRef(arguments.ray_group(group_id).ready())

    def remove(self, group_id: int) -> None:
        """See `Engine.remove_placement_group`."""
        ray.util.remove_placement_group(arguments.ray_group(group_id))
        self._removed.add(int(group_id))

    def rows(self) -> list[Mapping[str, Any]]:
        """See `Engine.placement_groups`."""
        return [_row(int(id, 16), row) for id, row in ray.util.placement_group_table().items()]

    def guarded(self, group_id: int, submit: Callable[..., Any]) -> Callable[..., Any]:
        """`submit`, for what runs inside a group; each call ValueError once the group is gone, for
        which Ray would wait without end.
        """
        row = ray.util.placement_group_table(arguments.ray_group(group_id))
        if row.get("state", "REMOVED") == "REMOVED":
            self._removed.add(int(group_id))

        def submit_unless_removed(*args: Any, **kwargs: Any) -> Any:
            if group_id in self._removed:
                raise ValueError(
                    f"the placement group {Id(group_id).hex()} was removed, so nothing can run in it any more: create another one, or "
                    f"leave out the scheduling strategy"
                )
            return submit(*args, **kwargs)

        return submit_unless_removed

    def statistics(self) -> GroupStatistics:
        """What there is now."""
        return GroupStatistics(removed=len(self._removed))


def _row(id: int, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": id,
        "name": row["name"],
        "strategy": row["strategy"],
        "bundles": [_whole(bundle) for _, bundle in sorted(row["bundles"].items())],
        "state": _STATES.get(row["state"], row["state"]),
    }


def _whole(bundle: Mapping[str, float]) -> dict[str, float]:
    return {
        name: int(amount) if amount == int(amount) else amount for name, amount in bundle.items()
    }
