"""Resources that come and go, without machines that do: for tests of programs that grow and shrink
with what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from syncline.core.embedded.engine import EmbeddedEngine
from syncline.core.lifecycle import ensure_engine


def set_total(amounts: Mapping[str, float] = MappingProxyType({}), /, **more: float) -> None:
    """Let this machine have so much from now on, such as `set_total(CPU=2)` or
    `set_total({"disk:fast": 1})`; the rest stays as it was.

    With more, what waits starts. With less nothing that runs is ended: it keeps what it holds,
    `available_resources()` says 0 until enough of that is given back, and nothing else is placed.
    What was submitted before and no longer fits waits; what is submitted then is refused.

    Raises RuntimeError where the engine is not the one of this machine (`init()` without an
    address), ValueError for another number of GPUs, and ValueError and TypeError for amounts that
    mean nothing.
    """
    engine = ensure_engine()
    if not isinstance(engine, EmbeddedEngine):
        raise RuntimeError(
            "`set_total` changes what the embedded engine may use, but this program runs on another: call `syncline.init()` without "
            "`address` and `local_mode` first; in a cluster, add and remove nodes (`syncline.testing.clusters`)"
        )
    engine.resize({**amounts, **more})
