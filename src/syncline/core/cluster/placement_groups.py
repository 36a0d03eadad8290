"""Placement groups on Ray.

Submissions into a removed group fail, because Ray would let them wait without a limit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import ray

from syncline.core import error_messages
from syncline.core.cluster import feasibility, ray_options
from syncline.core.cluster.handles import RayObject, ReadyRef
from syncline.core.definitions import AnyFunction
from syncline.core.engine import Row
from syncline.core.labels import Selector
from syncline.core.placement import PlacementGroup, check_bundles
from syncline.core.refs import Id

logger = logging.getLogger("syncline")

_STATES = {"PREPARED": "PENDING", "RESCHEDULING": "PENDING"}
"""Our state by Ray's, where they differ: bundles are being reserved, also after a loss."""


class Groups:
    """The cluster's placement groups. Thread safe."""

    def __init__(self, *, may_grow: Callable[[], bool]) -> None:
        self._may_grow = may_grow
        self._removed: set[int] = set()

    def create(
        self,
        bundles: Sequence[Mapping[str, float]],
        *,
        strategy: str,
        name: str,
        detached: bool,
        label_selectors: Sequence[Selector],
        may_wait: bool,
    ) -> int:
        """See `Engine.create_placement_group`."""
        check_bundles(bundles, strategy)
        if not self._may_grow():
            try:
                feasibility.check_bundles(bundles, strategy, ray.nodes(), label_selectors)
            except ValueError as error:
                if not may_wait:
                    raise
                logger.warning("%s", error_messages.group_waits(bundles, str(error)))
        specs = [
            {resource: amount for resource, amount in bundle.items() if amount}
            for bundle in bundles
        ]
        group = ray.util.placement_group(
            specs,
            strategy=strategy,
            name=name,
            lifetime="detached" if detached else None,
            bundle_label_selector=[dict(each) for each in label_selectors] or None,
        )
        return ray_options.group_number(group)

    def ready(self, group_id: int) -> ReadyRef:
        """See `Engine.placement_group_ready`."""
        return ReadyRef(ray_options.ray_group(group_id).ready())

    def remove(self, group_id: int) -> None:
        """See `Engine.remove_placement_group`."""
        ray.util.remove_placement_group(ray_options.ray_group(group_id))
        self._removed.add(int(group_id))

    def rows(self) -> list[Row]:
        """See `Engine.placement_groups`."""
        return [_row(int(id, 16), row) for id, row in ray.util.placement_group_table().items()]

    def guarded(self, group_id: int, submit: AnyFunction) -> AnyFunction:
        """Wrap `submit` so that it raises ValueError once the group is removed."""
        row = ray.util.placement_group_table(ray_options.ray_group(group_id))
        if row.get("state", "REMOVED") == "REMOVED":
            self._removed.add(int(group_id))

        def submit_unless_removed(*args: object, **kwargs: object) -> object:
            if group_id in self._removed:
                raise ValueError(
                    f"the placement group {Id(group_id).hex()} was removed, so nothing can run in "
                    f"it: create another one, or leave out the scheduling strategy"
                )
            return submit(*args, **kwargs)

        return submit_unless_removed

    @property
    def removed(self) -> int:
        """Number of groups that this process removed or found removed."""
        return len(self._removed)


def group_of(ray_group: RayObject) -> PlacementGroup:
    """Return our placement group for one of Ray's."""
    return PlacementGroup(ray_options.group_number(ray_group), ray_group.bundle_specs)


def _row(id: int, row: Row) -> Row:
    return {
        "id": id,
        "name": row["name"],
        "strategy": row["strategy"],
        "bundles": [_whole(bundle) for _, bundle in sorted(row["bundles"].items())],
        "nodes": [node_id for _, node_id in sorted(row["bundles_to_node_id"].items())],
        "state": _STATES.get(row["state"], row["state"]),
        "stats": row["stats"],
    }


def _whole(bundle: Mapping[str, float]) -> dict[str, float]:
    return {
        name: int(amount) if amount == int(amount) else amount for name, amount in bundle.items()
    }
