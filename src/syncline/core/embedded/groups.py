"""Placement groups in the hub. What fits where is the scheduler's business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.core import serialization
from syncline.core.embedded import messages as m
from syncline.core.embedded.values import error_value
from syncline.exceptions import TaskPlacementGroupRemoved

if TYPE_CHECKING:
    from syncline.core.embedded.hub import Hub

_TRUE = m.inline(serialization.pack(True).data)
REMOVED_KEPT = 100
"""How many removed groups stay listed."""


class GroupTable:
    """Placement groups by id. A group's id is also the id of the object that says that it is
    ready.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._groups: dict[int, dict[str, Any]] = {}

    def create(
        self, group_id: int, bundles: Sequence[Mapping[str, float]], strategy: str, name: str
    ) -> None:
        """Begin to reserve; ValueError where that can never succeed."""
        hub = self._hub
        instructions = hub.scheduler.create_group(group_id, bundles, strategy)
        hub.objects.add(group_id)
        self._groups[group_id] = {
            "id": group_id,
            "name": name,
            "strategy": strategy,
            "bundles": [dict(bundle) for bundle in bundles],
            "state": "PENDING",
        }
        hub.carry_out(instructions)

    def ready(self, group_id: int) -> None:
        """Everything is reserved."""
        self._groups[group_id]["state"] = "CREATED"
        self._hub.objects.settle(group_id, _TRUE)

    def remove(self, group_id: int) -> None:
        """Give the resources back and end what runs inside."""
        hub = self._hub
        group = self._groups.get(group_id)
        if group is None or group["state"] == "REMOVED":
            return
        removal = hub.scheduler.remove_group(group_id)
        pending, group["state"] = group["state"] == "PENDING", "REMOVED"
        hub.tasks.remove_from_group(removal.queued, removal.running)
        for actor_id in removal.actors:
            hub.actors.unplace(actor_id)
        if pending:
            error = TaskPlacementGroupRemoved(
                "The placement group was removed before everything in it was reserved."
            )
            hub.objects.settle(group_id, error_value(error))
        hub.objects.release((group_id,))
        hub.carry_out(removal.instructions)
        removed = [id for id, known in self._groups.items() if known["state"] == "REMOVED"]
        for id in removed[:-REMOVED_KEPT]:
            del self._groups[id]

    def all(self) -> list[Mapping[str, Any]]:
        """Every group that exists, and the last that were removed."""
        return [dict(group) for group in self._groups.values()]
