"""Nested dictionaries with flat keys such as "model/width": flattening, unflattening, merging."""

from collections.abc import Iterator, Mapping

from syncline.tune.search.spec_view import Value


def flatten_dict(dt: Mapping[Value, Value], flatten_list: bool = False) -> dict[str, Value]:
    """Flatten nested dictionaries, and lists if `flatten_list`, with indices as keys:
    `{"a": {"b": 1}}` becomes `{"a/b": 1}`. Empty containers are omitted.
    """
    # Keys on the top level keep their type.
    return {
        path[0] if len(path) == 1 else "/".join(map(str, path)): value
        for path, value in _leaves(dt, flatten_list)
    }


def unflatten_dict(dt: Mapping[str, Value]) -> dict[str, Value]:
    """Nest a flat dictionary: `{"a/b": 1}` becomes `{"a": {"b": 1}}`.

    Raises:
        TypeError: A key has both a value and nested keys.
    """
    nested: dict[str, Value] = {}
    for key, value in dt.items():
        *parents, last = key.split("/")
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


def unflatten_list_dict(dt: Mapping[str, Value]) -> Value:
    """Nest a flat dictionary, with lists for keys 0, 1, ...: `{"a/0/b": 1, "a/1/b": 2}` becomes
    `{"a": [{"b": 1}, {"b": 2}]}`.

    Raises:
        ValueError: Indices of a list are not consecutive.
    """
    return _with_lists(unflatten_dict(dt))


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
