"""One memory for two cloudpickles: Ray's own copy pickles values, and ours what syncline sends in
frames of its own, such as errors.

Each remembers which classes went by value, so that one that comes back is the class that was sent,
and `except` clauses know it. Were the two kept apart, a class that is sent by one and comes back
through the other would come back as a stranger of the same name.
"""

from __future__ import annotations

import cloudpickle.cloudpickle as ours
import ray.cloudpickle.cloudpickle as rays

_TABLES = (
    "_DYNAMIC_CLASS_TRACKER_BY_CLASS",
    "_DYNAMIC_CLASS_TRACKER_BY_ID",
    "_PICKLE_BY_VALUE_MODULES",
)


def join() -> None:
    """From now on both remember the same, and what each remembered before. Calling it again changes
    nothing.
    """
    lock = rays._DYNAMIC_CLASS_TRACKER_LOCK
    with lock:
        for name in _TABLES:
            table = getattr(rays, name)
            table.update(getattr(ours, name))
            setattr(ours, name, table)
        ours._DYNAMIC_CLASS_TRACKER_LOCK = lock
