"""`ray.experimental.get_object_locations`: the nodes that have a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncline.core.lifecycle import ensure_engine
from syncline.core.refs import AnyRef


def get_object_locations(
    obj_refs: Sequence[AnyRef], timeout_ms: int = -1
) -> dict[AnyRef, dict[str, Any]]:
    """Return `node_ids`, `object_size` in bytes and `did_spill` by reference.

    `node_ids` is empty before the value exists. `timeout_ms` has no effect on one machine.
    """
    return dict(zip(obj_refs, ensure_engine().object_locations(obj_refs), strict=True))


def get_local_object_locations(obj_refs: Sequence[AnyRef]) -> dict[AnyRef, dict[str, Any]]:
    """Return the same as `get_object_locations`, as far as this process knows it."""
    return get_object_locations(obj_refs)
