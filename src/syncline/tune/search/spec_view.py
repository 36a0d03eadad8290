"""Read-only views of a partly resolved configuration, for functions in a search space.

Values can be read as attributes and as items, with or without the `config` step of older programs.
Reading an unresolved value raises `RecursiveDependencyError`; the resolver then calls the function
again later.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""A value of a parameter, or a (partly resolved) search space."""


class Unresolved:
    """Base class of unresolved values in a search space."""


class RecursiveDependencyError(ValueError):
    """An unresolved value was read, or parameters depend on each other in a cycle."""

    key = ""
    """Flat key of the value, "a/b"."""


class MappingView(Mapping[Value, Value]):
    """View of a dictionary: `view["a"]["b"]` or `view.a.b`."""

    def __init__(self, values: Mapping[Value, Value], path: tuple[Value, ...] = ()) -> None:
        self._values = values
        self._path = path

    def __getitem__(self, key: Value) -> Value:
        return view_of(self._values[key], (*self._path, key))

    def __getattr__(self, name: str) -> Value:
        # Copying and pickling look up special methods before the view has values.
        if name.startswith("__") or name in ("_values", "_path"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"no key {name!r} in {_location(self._path)}, which has "
                f"{sorted(map(str, self._values))}"
            ) from None

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(unwrap(self))


class SpecView(MappingView):
    """View of the whole configuration: `view["a"]` or `view.a`; older programs write
    `view.config.a` or `view["config"]["a"]`.

    The configuration may also be stored under the key "config" of a specification.
    """

    def __getitem__(self, key: Value) -> Value:
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


class SequenceView(Sequence[Value]):
    """View of a list or tuple with unresolved items."""

    def __init__(self, values: Sequence[Value], path: tuple[Value, ...]) -> None:
        self._values = values
        self._path = path

    def __getitem__(self, index: Value) -> Value:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return view_of(self._values[index], (*self._path, index))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(unwrap(self))


def view_of(value: Value, path: tuple[Value, ...]) -> Value:
    """Return `value`, or a view of a container.

    Raises:
        RecursiveDependencyError: The value is unresolved.
    """
    if isinstance(value, Unresolved):
        error = RecursiveDependencyError(f"{_location(path)} is not resolved yet")
        error.key = _location(path)
        raise error
    if isinstance(value, dict):
        return MappingView(value, path)
    if isinstance(value, list | tuple) and _has_unresolved(value):
        return SequenceView(value, path)
    return value


def unwrap(value: Value) -> Value:
    """Replace views in the return value of a function by copies."""
    if isinstance(value, MappingView):
        return {key: unwrap(value[key]) for key in value}
    if isinstance(value, SequenceView):
        return [unwrap(item) for item in value]
    return value


def _has_unresolved(value: Value) -> bool:
    if isinstance(value, dict):
        return any(_has_unresolved(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_has_unresolved(item) for item in value)
    return isinstance(value, Unresolved)


def _location(path: tuple[Value, ...]) -> str:
    return f"`{'/'.join(map(str, path))}`" if path else "the configuration"
