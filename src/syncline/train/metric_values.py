"""Metrics as plain values that JSON, a table and another process can hold.

`clean` converts reported metrics to plain values and refuses tensors, modules and state dicts,
which keep GPU memory alive and may be large. Neither torch nor NumPy is imported: their values
exist only in processes that have imported them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from syncline.core.pickling import can_pickle
from syncline.runs.json_values import JsonObject, Record
from syncline.runs.media import is_media
from syncline.suggestions import did_you_mean
from syncline.train.media import Media

Metrics = Record
"""Reported metrics by name."""

_Types = tuple[type[Any], type[Any]]
"""(Tensor, Module) of torch, or (generic, ndarray) of NumPy."""
_PLAIN = frozenset({float, int, str, bool, type(None)})
"""Types of nearly all values. They are checked first, since every training step may report."""


def clean(metrics: Metrics) -> JsonObject:
    """Return a copy of `metrics` in plain values.

    NumPy scalars become Python numbers and keys become strings, also in nested dictionaries, lists
    and tuples.

    Raises:
        TypeError: `metrics` is not a dictionary.
        ValueError: A value is a tensor, a module or a state dict, or cannot be pickled.
    """
    if type(metrics) is not dict and not isinstance(metrics, Mapping):
        raise TypeError(
            f"report(metrics={_shorten(metrics)}): metrics must be a dictionary, not a "
            f'{type(metrics).__name__}. Give each value a name: `report({{"loss": loss}})`.'
        )
    return {
        str(key): value if type(value) in _PLAIN else _clean_value(value, str(key))
        for key, value in metrics.items()
    }


def flatten(metrics: Metrics) -> JsonObject:
    """Join the keys of nested dictionaries by `/`: `{"a": {"b": 1}}` becomes `{"a/b": 1}`."""
    flat: JsonObject = {}
    for key, value in metrics.items():
        if isinstance(value, Mapping) and value and not is_media(value):
            flat.update({f"{key}/{inner}": item for inner, item in flatten(value).items()})
        else:
            flat[str(key)] = value
    return flat


def select(logged: Metrics, wanted: str | Sequence[str] | Mapping[str, str] | None) -> JsonObject:
    """Return the metrics to report from a framework's log.

    Args:
        logged: The framework's log.
        wanted: One name, several names, or `{name to report: name in the log}`; None for all.

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
            f"metrics={wanted!r}: {', '.join(missing)} was not logged. Logged: {sorted(logged)}."
            f"{did_you_mean(missing[0], logged)}"
        )
    return {reported: logged[name] for reported, name in names.items()}


def lookup(metrics: Metrics, key: str) -> Any:
    """Return the value under `key`, or under the path `a/b` of a nested value; None if missing."""
    if key in metrics:
        return metrics[key]
    head, slash, rest = key.partition("/")
    inner = metrics.get(head)
    return lookup(inner, rest) if slash and isinstance(inner, Mapping) else None


def score(metrics: Metrics, key: str, order: Literal["max", "min"]) -> float | None:
    """Return the value under `key` as a score, higher is better; None if it is not a number."""
    try:
        number = float(lookup(metrics, key))
    except (TypeError, ValueError, OverflowError):
        return None
    if math.isnan(number):
        return None
    return number if order == "max" else -number


def check_score(metrics: Metrics, key: str, names: Collection[str] | None = None) -> None:
    """Check that a checkpoint with these metrics can be ranked by `key`; None and NaN rank worst.

    Args:
        metrics: Metrics of the first checkpoint.
        key: Score attribute.
        names: Names of metrics for the message; by default all of `metrics`.

    Raises:
        ValueError: The metric is missing, or its value is not a number.
    """
    value = lookup(metrics, key)
    problem = f"Checkpoints are ranked by `checkpoint_score_attribute={key!r}`, but the "
    if value is not None:
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"{problem}first checkpoint has the value {_shorten(value)}. Report a number, or "
                "rank the checkpoints by another metric."
            ) from None
        return
    flat = flatten(metrics)
    if key in flat:
        return
    names = flat.keys() if names is None else names
    raise ValueError(
        f"{problem}first checkpoint has no metric of that name.{did_you_mean(key, names)} "
        f"Its metrics: {', '.join(map(repr, sorted(names))) or 'none'}. Correct the name, or "
        f"report {key!r} with the first checkpoint; the value None ranks it as the worst."
    )


def _clean_value(value: Any, key: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {str(name): _clean_value(item, f"{key}/{name}") for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        cleaned = [_clean_value(item, f"{key}[{position}]") for position, item in enumerate(value)]
        return cleaned if isinstance(value, list) else tuple(cleaned)
    if isinstance(value, Media):
        return value.stored(key)
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
            f"The metric {key!r} is a {kind.__name__}, which cannot be sent to the controller "
            f"({failure}). Report a number or a string instead."
        )
    if numpy_types and isinstance(value, numpy_types[1]):
        return value.copy()  # the training function may write into it before it is sent
    return value


def _refusal(value: Any, key: str, torch_types: _Types) -> str:
    kind = f"a {type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    if isinstance(value, torch_types[1]):
        remedy = "Save its `state_dict()` in a checkpoint instead"
    else:
        kind += f" of shape {tuple(value.shape)} on {value.device}"
        remedy = (
            f"Report `{key.partition('/')[0]}.item()` instead"
            if value.numel() == 1
            else "Report a number (`.mean().item()`) or a list (`.tolist()`), or save it in a "
            "checkpoint instead"
        )
    return f"The metric {key!r} is {kind}. Metrics are kept, so its memory would be, too. {remedy}."


def _torch_types() -> _Types | None:
    torch = sys.modules.get("torch")
    # Another thread may be importing torch: the module may exist without its content.
    tensor = getattr(torch, "Tensor", None)
    module = getattr(getattr(torch, "nn", None), "Module", None)
    return (tensor, module) if tensor and module else None


def _numpy_types() -> _Types | None:
    numpy = sys.modules.get("numpy")
    generic, array = getattr(numpy, "generic", None), getattr(numpy, "ndarray", None)
    return (generic, array) if generic and array else None


def _shorten(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
