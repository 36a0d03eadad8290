"""What a function in a search space sees of the configuration while that is being resolved.

Covered: reading by attribute and by key, with the `config` step of older programs and without it;
reading a value that is not drawn yet raises `RecursiveDependencyError`, upon which the resolver
comes back later. Not covered: changing anything; views are read-only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn


class Unresolved:
    """Base of what a search space holds in the place of a value."""


class RecursiveDependencyError(ValueError):
    """A value was read that is itself still to be drawn; or, in the end, parameters that wait for
    each other.
    """

    place = ""
    """The key of the value, "a/b"."""


class MappingView(Mapping[Any, Any]):
    """A dictionary of the configuration: `view["a"]["b"]` and `view.a.b` read it."""

    def __init__(self, values: Mapping[Any, Any], path: tuple[Any, ...] = ()) -> None:
        self._values = values
        self._path = path

    def __getitem__(self, key: Any) -> Any:
        return guarded(self._values[key], (*self._path, key))

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for special methods before the view has any values.
        if name.startswith("__") or name in ("_values", "_path"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"no key {name!r} in {_place(self._path)}, which has {sorted(map(str, self._values))}"
            ) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(unwrapped(self))


class SpecView(MappingView):
    """The whole: `view["a"]`, `view.a`, and as older programs write, `view.config.a` and
    `view["config"]["a"]`.

    It may show a configuration, or a specification that holds the configuration under "config":
    both read the same.
    """

    def __getitem__(self, key: Any) -> Any:
        if key in self._values:
            return super().__getitem__(key)
        if key == "config":
            return MappingView(self._values)
        inner = self._values.get("config")
        return (
            MappingView(inner, ("config",))[key]
            if isinstance(inner, dict)
            else super().__getitem__(key)
        )


class SequenceView(Sequence[Any]):
    """A list or tuple of the configuration in which some items are not drawn yet."""

    def __init__(self, values: Sequence[Any], path: tuple[Any, ...]) -> None:
        self._values = values
        self._path = path

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return guarded(self._values[index], (*self._path, index))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(unwrapped(self))


def guarded(value: Any, path: tuple[Any, ...]) -> Any:
    """`value` as a function may see it. Raises RecursiveDependencyError where it is not drawn
    yet.
    """
    if isinstance(value, Unresolved):
        _refuse(path)
    if isinstance(value, dict):
        return MappingView(value, path)
    if isinstance(value, list | tuple) and _has_unresolved(value):
        return SequenceView(value, path)
    return value


def unwrapped(value: Any) -> Any:
    """What a function returned, with views replaced by copies of what they show."""
    if isinstance(value, MappingView):
        return {key: unwrapped(value[key]) for key in value}
    if isinstance(value, SequenceView):
        return [unwrapped(item) for item in value]
    return value


def _has_unresolved(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_unresolved(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_has_unresolved(item) for item in value)
    return isinstance(value, Unresolved)


def _refuse(path: tuple[Any, ...]) -> NoReturn:
    error = RecursiveDependencyError(f"{_place(path)} is not drawn yet")
    error.place = _place(path)
    raise error


def _place(path: tuple[Any, ...]) -> str:
    return f"`{'/'.join(map(str, path))}`" if path else "the configuration"
