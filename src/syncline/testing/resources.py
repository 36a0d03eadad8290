"""Changes of this machine's resources, to test programs that adapt to them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from syncline.core.embedded.engine import EmbeddedEngine
from syncline.core.lifecycle import ensure_engine


def set_total(amounts: Mapping[str, float] = MappingProxyType({}), /, **more: float) -> None:
    """Set the totals of this machine's engine; other resources keep theirs.

    For example `set_total(CPU=2)` or `set_total({"disk:fast": 1})`. After an increase, waiting
    tasks start. After a decrease, running tasks keep their resources, `available_resources()` is 0
    until enough of them are released, and no task starts before. Submitted tasks that no longer fit
    wait; new ones are refused.

    Raises RuntimeError on another engine than this machine's (`init()` without an address),
    ValueError for a change of the number of GPUs, and ValueError or TypeError for invalid amounts.
    """
    engine = ensure_engine()
    if not isinstance(engine, EmbeddedEngine):
        raise RuntimeError(
            "`set_total` changes the embedded engine, but this program runs on another: call "
            "`syncline.init()` without `address` and `local_mode` first; on a cluster, add and "
            "remove nodes (`syncline.testing.clusters`)"
        )
    engine.resize({**amounts, **more})
