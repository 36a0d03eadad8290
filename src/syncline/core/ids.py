"""Ids with Ray's classes and methods, for programs that convert between text, bytes and objects.

`get_runtime_context()` and `nodes()` return ids as text; `X.from_hex(text)` makes an object of it.
"""

from __future__ import annotations

import secrets
from typing import ClassVar, TypeVar

U = TypeVar("U", bound="UniqueID")


class UniqueID:
    """An id of some bytes. Ids of different classes differ."""

    __slots__ = ("_bytes",)
    SIZE: ClassVar[int] = 16
    """Bytes of ids that `nil` and `from_random` make; those of an engine may have others."""

    def __init__(self, id: bytes) -> None:
        if not isinstance(id, (bytes, bytearray)):
            raise TypeError(
                f"{type(self).__name__} takes bytes, but got {id!r}: "
                f"use `{type(self).__name__}.from_hex(...)` for text"
            )
        self._bytes = bytes(id)

    @classmethod
    def from_hex(cls: type[U], hex_id: str) -> U:
        """Return the id with these hexadecimal digits."""
        return cls(bytes.fromhex(hex_id))

    @classmethod
    def from_binary(cls: type[U], id: bytes) -> U:
        """Return the id with these bytes."""
        return cls(id)

    @classmethod
    def from_random(cls: type[U]) -> U:
        """Return a new random id."""
        return cls(secrets.token_bytes(cls.SIZE))

    @classmethod
    def nil(cls: type[U]) -> U:
        """Return the null id."""
        return cls(bytes(cls.SIZE))

    @classmethod
    def size(cls) -> int:
        """Return the number of bytes of `nil`."""
        return cls.SIZE

    def is_nil(self) -> bool:
        """Return True for the null id."""
        return not any(self._bytes)

    def binary(self) -> bytes:
        """Return the bytes."""
        return self._bytes

    def hex(self) -> str:
        """Return the hexadecimal digits."""
        return self._bytes.hex()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._bytes == self._bytes

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._bytes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._bytes,))


class JobID(UniqueID):
    """Id of a program's run."""

    __slots__ = ()
    SIZE = 4

    @classmethod
    def from_int(cls, value: int) -> JobID:
        """Return the id with this number."""
        return cls(value.to_bytes(cls.SIZE, "little"))


class NodeID(UniqueID):
    """Id of a node."""

    __slots__ = ()


class WorkerID(UniqueID):
    """Id of a process."""

    __slots__ = ()


class TaskID(UniqueID):
    """Id of a task or call."""

    __slots__ = ()


class ActorID(UniqueID):
    """Id of an actor."""

    __slots__ = ()


class ActorClassID(UniqueID):
    """Id of an actor class."""

    __slots__ = ()


class FunctionID(UniqueID):
    """Id of a remote function."""

    __slots__ = ()


class PlacementGroupID(UniqueID):
    """Id of a placement group."""

    __slots__ = ()


class ClusterID(UniqueID):
    """Id of a cluster."""

    __slots__ = ()
