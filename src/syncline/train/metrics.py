"""What may be reported: plain values that JSON, a table and another process can hold.

`clean` turns what a train function reports into such values and refuses what would be wrong to
send: tensors, modules and state dicts keep GPU memory alive and may be large. Neither torch nor
NumPy is imported here: a value of theirs can only exist where they are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from syncline.core.pickling import can_pickle

_Types = tuple[type[Any], type[Any]]
"""torch's (Tensor, Module), or NumPy's (generic, ndarray)."""
_PLAIN = frozenset({float, int, str, bool, type(None)})
"""The types of nearly all values, looked at first: each step of training may report."""


def clean(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `metrics` in plain values: NumPy scalars as Python numbers, keys as strings; nested
    dictionaries, lists and tuples too.

    Raises:
        TypeError: `metrics` is no dictionary. ValueError: There is a tensor, a module or a state
        dict in it, or something that cannot be pickled.
    """
    if type(metrics) is not dict and not isinstance(metrics, Mapping):
        raise TypeError(
            f"report(metrics={_shorten(metrics)}): metrics are a dictionary, not a {type(metrics).__name__}: "
            'give each value a name, as in `report({"loss": loss})`.'
        )
    return {
        str(key): value if type(value) in _PLAIN else _clean_value(value, str(key))
        for key, value in metrics.items()
    }


def flatten(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries as one level, their keys joined by `/`: `{"a": {"b": 1}}` becomes
    `{"a/b": 1}`.
    """
    flat: dict[str, Any] = {}
    for key, value in metrics.items():
        if isinstance(value, Mapping) and value:
            flat.update({f"{key}/{inner}": item for inner, item in flatten(value).items()})
        else:
            flat[str(key)] = value
    return flat


def select(
    logged: Mapping[str, Any], wanted: str | Sequence[str] | Mapping[str, str] | None
) -> dict[str, Any]:
    """Those values of a framework's log that are to be reported: one name, several, or `{name to
    report: name in the log}`; all if None.

    Raises:
        KeyError: A name is not in the log.
    """
    if wanted is None:
        return dict(logged)
    if isinstance(wanted, str):
        wanted = (wanted,)
    names = wanted if isinstance(wanted, Mapping) else {name: name for name in wanted}
    missing = sorted(name for name in names.values() if name not in logged)
    if missing:
        raise KeyError(
            f"metrics={wanted!r}: {', '.join(missing)} was not logged, so it cannot be reported; there is: {sorted(logged)}"
        )
    return {reported: logged[name] for reported, name in names.items()}


def lookup(metrics: Mapping[str, Any], key: str) -> Any:
    """The value under `key`, which may be the path `a/b` of a nested one; None if there is none."""
    if key in metrics:
        return metrics[key]
    head, slash, rest = key.partition("/")
    inner = metrics.get(head)
    return lookup(inner, rest) if slash and isinstance(inner, Mapping) else None


def score(metrics: Mapping[str, Any], key: str, order: Literal["max", "min"]) -> float | None:
    """How good `metrics` are, higher is better, by the value under `key`; None if that is missing,
    NaN or no number.
    """
    try:
        number = float(lookup(metrics, key))
    except (TypeError, ValueError, OverflowError):
        return None
    if math.isnan(number):
        return None
    return number if order == "max" else -number


def _clean_value(value: Any, key: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {str(name): _clean_value(item, f"{key}/{name}") for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        cleaned = [_clean_value(item, f"{key}[{position}]") for position, item in enumerate(value)]
        return cleaned if isinstance(value, list) else tuple(cleaned)
    numpy_types, torch_types = _numpy_types(), _torch_types()
    if numpy_types and (
        isinstance(value, numpy_types[0]) or (isinstance(value, numpy_types[1]) and value.ndim == 0)
    ):
        return value.item()
    if torch_types and isinstance(value, torch_types):
        raise ValueError(_refusal(value, key, torch_types))
    failure = can_pickle(value)
    if failure is not None:
        raise ValueError(
            f"The metric {key!r} is a {kind.__name__}, which cannot be sent to the controller ({failure}). "
            "Report a number or a text made from it."
        )
    if numpy_types and isinstance(value, numpy_types[1]):
        return value.copy()  # the training function may go on writing into it before it is sent
    return value


def _refusal(value: Any, key: str, torch_types: _Types) -> str:
    if isinstance(value, torch_types[1]):
        remedy = "Save its `state_dict()` in a checkpoint instead"
    elif value.numel() == 1:
        remedy = f"Report `{key.partition('/')[0]}.item()` instead"
    else:
        remedy = "Report a number made from it (`.mean().item()`), or a list (`.tolist()`), or save it in a checkpoint instead"
    what = f"a {type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    if not isinstance(value, torch_types[1]):
        what += f" of shape {tuple(value.shape)} on {value.device}"
    return f"The metric {key!r} is {what}. Metrics are sent to the controller and kept, so it would hold on to the memory. {remedy}."


def _torch_types() -> _Types | None:
    torch = sys.modules.get("torch")
    # Another thread may be importing torch at this moment, so that the module is there without its
    # content.
    tensor, module = (
        getattr(torch, "Tensor", None),
        getattr(getattr(torch, "nn", None), "Module", None),
    )
    return (tensor, module) if tensor and module else None


def _numpy_types() -> _Types | None:
    numpy = sys.modules.get("numpy")
    generic, array = getattr(numpy, "generic", None), getattr(numpy, "ndarray", None)
    return (generic, array) if generic and array else None


def _shorten(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
