"""What Ray's workers run for a task: the user's function, with its errors wrapped as every engine
wraps them.

One remote function of Ray's is made for each function of the user's and way of giving results,
however many plans there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal

import ray

from syncline.core import serialization
from syncline.core.cluster.errors import failure
from syncline.core.cluster.facts import enter
from syncline.core.refs import DynamicObjectRefGenerator, current_engine

Kind = Literal["plain", "streaming", "dynamic"]
"""How a function gives its results: what it returns, item by item, or all items behind one
reference.
"""


@lru_cache(maxsize=1024)
def remote_function(function: Callable[..., Any], kind: Kind, max_calls: int) -> Any:
    """Ray's remote function for `function`. TypeError, naming the part, where it cannot be
    pickled.
    """
    serialization.pack_callable(function)
    body = _BODIES[kind](function)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(body, name, getattr(function, name, None) or getattr(body, name))
    return ray.remote(max_calls=max_calls)(body)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    def body(*args: Any, **kwargs: Any) -> Any:
        enter()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise failure(error) from None

    return body


def _streaming(function: Callable[..., Any]) -> Callable[..., Any]:
    def body(*args: Any, **kwargs: Any) -> Iterator[Any]:
        enter()
        try:
            yield from (
                item for item in function(*args, **kwargs)
            )  # Ray sends into it, which not every iterator takes
        except Exception as error:
            raise failure(error) from None

    return body


def _dynamic(function: Callable[..., Any]) -> Callable[..., Any]:
    def body(*args: Any, **kwargs: Any) -> Any:
        enter()
        try:
            put = current_engine().put
            return DynamicObjectRefGenerator([put(item) for item in function(*args, **kwargs)])
        except Exception as error:
            raise failure(error) from None

    return body


_BODIES: dict[Kind, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "plain": _plain,
    "streaming": _streaming,
    "dynamic": _dynamic,
}
