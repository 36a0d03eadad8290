"""The table of placement groups. The scheduler reserves their bundles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline.core import serialization
from syncline.core.embedded.instructions import GroupRemoval, Instructions
from syncline.core.embedded.messages import error_value, inline
from syncline.core.embedded.object_table import ObjectTable
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.placement import PlacementGroup
from syncline.core.resources import Infeasible
from syncline.exceptions import TaskPlacementGroupRemoved

_SCHEDULING = {"PENDING": "QUEUED", "CREATED": "FINISHED", "REMOVED": "REMOVED"}
"""Ray's `scheduling_state` by state."""
REMOVED_KEPT = 100
"""Number of removed groups that stay listed."""


class GroupTable:
    """Placement groups by id, which is also the id of the object that settles when one is ready."""

    def __init__(
        self,
        scheduler: Scheduler,
        objects: ObjectTable,
        apply: Callable[[Instructions], None],
        end_members: Callable[[GroupRemoval], None],
    ) -> None:
        """`apply` executes instructions; `end_members` ends the tasks and actors of a group."""
        self._scheduler = scheduler
        self._objects = objects
        self._apply = apply
        self._end_members = end_members
        self._groups: dict[int, dict[str, Any]] = {}

    def create(
        self,
        group_id: int,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        name: str,
        may_wait: bool = False,
    ) -> str | None:
        """Reserve a group's bundles.

        Bundles that can never be reserved raise ValueError; with `may_wait` they wait for more
        resources, and the result is the reason.
        """
        problem: str | None = None
        try:
            instructions = self._scheduler.create_group(group_id, bundles, strategy)
        except Infeasible as error:
            if not may_wait:
                raise
            problem = str(error)
            instructions = self._scheduler.create_group(
                group_id, bundles, strategy, is_feasible=False
            )
        self._objects.add(group_id)
        self._groups[group_id] = {
            "id": group_id,
            "name": name,
            "strategy": strategy,
            "bundles": [dict(bundle) for bundle in bundles],
            "state": "PENDING",
        }
        self._apply(instructions)
        return problem

    def on_ready(self, group_id: int) -> None:
        """Handle the reservation of all bundles."""
        group = self._groups[group_id]
        group["state"] = "CREATED"
        value = PlacementGroup(group_id, group["bundles"])
        self._objects.settle(group_id, inline(serialization.pack(value).data))

    def remove(self, group_id: int) -> None:
        """Release the resources of a group and end its members."""
        group = self._groups.get(group_id)
        if group is None or group["state"] == "REMOVED":
            return
        removal = self._scheduler.remove_group(group_id)
        pending, group["state"] = group["state"] == "PENDING", "REMOVED"
        self._end_members(removal)
        if pending:
            error = TaskPlacementGroupRemoved(
                "The placement group was removed before all of its bundles were reserved."
            )
            self._objects.settle(group_id, error_value(error))
        self._objects.release((group_id,))
        self._apply(removal.instructions)
        removed = [id for id, known in self._groups.items() if known["state"] == "REMOVED"]
        for id in removed[:-REMOVED_KEPT]:
            del self._groups[id]

    def all(self, node_id: str) -> list[dict[str, Any]]:
        """Return every group that exists, and the last removed ones; `node_id` is this machine."""
        return [
            {
                **group,
                "nodes": [node_id if group["state"] == "CREATED" else ""] * len(group["bundles"]),
                "stats": {"scheduling_state": _SCHEDULING[group["state"]]},
            }
            for group in self._groups.values()
        ]
