"""Nested dictionaries with flat keys such as "model/width": flattening, unflattening, merging; and
the check of a searcher's initial points.
"""

from collections.abc import Iterator, Mapping, Sequence

from syncline.tune.search.spec_view import Value


def flatten_dict(
    dt: Mapping[Value, Value],
    delimiter: str = "/",
    prevent_delimiter: bool = False,
    flatten_list: bool = False,
) -> dict[str, Value]:
    """Flatten nested dictionaries: `{"a": {"b": 1}}` becomes `{"a/b": 1}`. Empty containers are
    omitted.

    Args:
        dt: The dictionary.
        delimiter: Separator of nested keys.
        prevent_delimiter: If True, keys must not contain `delimiter`.
        flatten_list: If True, flatten lists too, with indices as keys.

    Raises:
        ValueError: A key contains `delimiter` and `prevent_delimiter` is True.
    """
    flat: dict[str, Value] = {}
    for path, value in _leaves(dt, flatten_list):
        if prevent_delimiter and any(isinstance(key, str) and delimiter in key for key in path):
            raise ValueError(
                f"The key {delimiter.join(map(str, path))!r} contains {delimiter!r}, which "
                f"separates nested keys. Rename the key."
            )
        # Keys on the top level keep their type.
        flat[path[0] if len(path) == 1 else delimiter.join(map(str, path))] = value
    return flat


def unflatten_dict(dt: Mapping[str, Value], delimiter: str = "/") -> dict[str, Value]:
    """Nest a flat dictionary: `{"a/b": 1}` becomes `{"a": {"b": 1}}`.

    Raises:
        TypeError: A key has both a value and nested keys.
    """
    nested: dict[str, Value] = {}
    for key, value in dt.items():
        *parents, last = key.split(delimiter)
        inner = nested
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise TypeError(
                    f"{key!r} needs a dictionary at {parent!r}, which has the value {inner!r}. "
                    f"Rename one of the two keys."
                )
        inner[last] = value
    return nested


def unflatten_list_dict(dt: Mapping[str, Value], delimiter: str = "/") -> Value:
    """Nest a flat dictionary, with lists for keys 0, 1, ...: `{"a/0/b": 1, "a/1/b": 2}` becomes
    `{"a": [{"b": 1}, {"b": 2}]}`.

    Raises:
        ValueError: Indices of a list are not consecutive.
    """
    return _with_lists(unflatten_dict(dt, delimiter))


def merge_dicts(base: Mapping[Value, Value], changes: Mapping[Value, Value]) -> dict[Value, Value]:
    """Return a deep merge in which `changes` override `base`. Values other than dictionaries are
    shared, not copied.
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
    points_to_evaluate: Sequence[Value] | None,
    evaluated_rewards: Sequence[float] | None,
    validate_point_name_lengths: bool = True,
) -> None:
    """Check a searcher's initial points and their known results.

    Args:
        parameter_names: Names of the parameters.
        points_to_evaluate: Initial points.
        evaluated_rewards: Known metrics of the points.
        validate_point_name_lengths: If True, each point must have one value per parameter.

    Raises:
        TypeError: The points are not a list of dictionaries or lists, or the rewards not a list.
        ValueError: The number of values or of rewards is wrong.
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
                f"Items of `points_to_evaluate` must be dictionaries or lists, not {point!r}."
            )
        if validate_point_name_lengths and len(point) != len(parameter_names):
            raise ValueError(
                f"The point {point} has {len(point)} values, but there are {len(parameter_names)} "
                f"parameters: {parameter_names}."
            )
    if not evaluated_rewards:
        return
    if not isinstance(evaluated_rewards, list):
        raise TypeError(
            f"`evaluated_rewards` must be a list of numbers, not {evaluated_rewards!r}."
        )
    if len(evaluated_rewards) != len(points_to_evaluate):
        raise ValueError(
            f"There are {len(evaluated_rewards)} `evaluated_rewards` for "
            f"{len(points_to_evaluate)} `points_to_evaluate`. Give one reward for each point, in "
            f"the same order."
        )


def _leaves(
    value: Value, lists: bool, path: tuple[Value, ...] = ()
) -> Iterator[tuple[tuple[Value, ...], Value]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, lists, (*path, key))
    elif lists and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, lists, (*path, index))
    else:
        yield path, value


def _with_lists(value: Value) -> Value:
    if not isinstance(value, dict):
        return value
    items = {key: _with_lists(item) for key, item in value.items()}
    if not items or not all(key.isdigit() for key in items):
        return items
    in_order = sorted(items, key=int)
    if [int(key) for key in in_order] != list(range(len(items))):
        raise ValueError(f"The indices {in_order} of a list must be consecutive from 0.")
    return [items[key] for key in in_order]
