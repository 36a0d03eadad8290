"""Nested dictionaries with flat keys such as "model/width", and checks that searchers share.

Covered: flattening and unflattening (lists too), deep merging, the points that a searcher is given
to start from.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def flatten_dict(
    dt: Mapping[Any, Any],
    delimiter: str = "/",
    prevent_delimiter: bool = False,
    flatten_list: bool = False,
) -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`; with `flatten_list`, items of lists get their index as
    key. Empty containers vanish.

    With `prevent_delimiter`, a key that contains `delimiter` itself is a ValueError: it could not
    be told apart afterwards.
    """
    flat: dict[str, Any] = {}
    for path, value in _leaves(dt, flatten_list):
        if prevent_delimiter and any(isinstance(key, str) and delimiter in key for key in path):
            raise ValueError(
                f"The key {_delimited(path, delimiter)!r} contains {delimiter!r}, which separates nested keys: rename it."
            )
        # Keys at the top stay what they are.
        flat[path[0] if len(path) == 1 else delimiter.join(map(str, path))] = value
    return flat


def unflatten_dict(dt: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """`{"a/b": 1}` as `{"a": {"b": 1}}`. TypeError if a key has both a value and keys below it."""
    nested: dict[str, Any] = {}
    for key, value in dt.items():
        *parents, last = key.split(delimiter)
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise TypeError(
                    f"{key!r} needs a dictionary at {parent!r}, which holds {place!r}: rename one of the two keys."
                )
        place[last] = value
    return nested


def unflatten_list_dict(dt: Mapping[str, Any], delimiter: str = "/") -> Any:
    """`{"a/0/b": 1, "a/1/b": 2}` as `{"a": [{"b": 1}, {"b": 2}]}`: keys 0, 1, ... make a list, with
    a gap they are a ValueError.
    """
    return _with_lists(unflatten_dict(dt, delimiter))


def merge_dicts(base: Mapping[Any, Any], changes: Mapping[Any, Any]) -> dict[Any, Any]:
    """A new dictionary: `base`, with `changes` over it at every depth. Other values than
    dictionaries are shared, not copied.
    """
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = (
            merge_dicts(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged


def validate_warmstart(
    parameter_names: Sequence[str],
    points_to_evaluate: Sequence[Any] | None,
    evaluated_rewards: Sequence[float] | None,
    validate_point_name_lengths: bool = True,
) -> None:
    """Checks the points that a searcher is to start from, and their known results.

    TypeError unless points are a list of dictionaries or lists, and rewards a list. ValueError if a
    point has another number of values than there are parameters (unless
    `validate_point_name_lengths` is False), or rewards are not as many as points.
    """
    if not points_to_evaluate:
        return
    if not isinstance(points_to_evaluate, list):
        raise TypeError(
            f"`points_to_evaluate` must be a list of configurations, not {points_to_evaluate!r}."
        )
    for point in points_to_evaluate:
        if not isinstance(point, dict | list):
            raise TypeError(
                f"Each of `points_to_evaluate` must be a dictionary or a list, not {point!r}."
            )
        if validate_point_name_lengths and len(point) != len(parameter_names):
            raise ValueError(
                f"The point {point} has {len(point)} values, but there are {len(parameter_names)} parameters: {parameter_names}."
            )
    if not evaluated_rewards:
        return
    if not isinstance(evaluated_rewards, list):
        raise TypeError(
            f"`evaluated_rewards` must be a list of numbers, not {evaluated_rewards!r}."
        )
    if len(evaluated_rewards) != len(points_to_evaluate):
        raise ValueError(
            f"There are {len(evaluated_rewards)} `evaluated_rewards` for {len(points_to_evaluate)} `points_to_evaluate`: "
            "give one for each point, in the same order."
        )


def _leaves(
    value: Any, lists: bool, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, lists, (*path, key))
    elif lists and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, lists, (*path, index))
    else:
        yield path, value


def _delimited(path: tuple[Any, ...], delimiter: str) -> str:
    return delimiter.join(map(str, path))


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    items = {key: _with_lists(item) for key, item in value.items()}
    if not items or not all(key.isdigit() for key in items):
        return items
    in_order = sorted(items, key=int)
    if [int(key) for key in in_order] != list(range(len(items))):
        raise ValueError(f"The indices {in_order} of a list must count 0, 1, ... without a gap.")
    return [items[key] for key in in_order]
