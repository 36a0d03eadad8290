"""What a user wrote, as bytes that pass through processes which need not be able to load it: only
the worker that runs it must.

A controller in a process of its own hands the training function and its configuration through like
this: it need not have the modules that they use, nor spend the time to import them.
"""

from __future__ import annotations

import io
import pickle
import socket
from dataclasses import dataclass
from typing import Any

import cloudpickle

from syncline.core import serialization
from syncline.core.refs import ObjectRef


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A pickled value."""

    data: bytes
    what: str
    """For messages, such as "the training function `train`"."""
    refs: tuple[ObjectRef[Any], ...] = ()
    """The references in the value, which the engine has to see where they go: as bytes they would
    hold nothing.
    """

    def load(self) -> Any:
        """The value.

        Raises:
            ModuleNotFoundError: This node has not got a module that it uses; with the node and the
            remedy.
        """
        try:
            return _Unpickler(io.BytesIO(self.data), self.refs).load()
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"{self.what} needs the module {error.name!r}, which cannot be imported on the node {socket.gethostname()}: send the "
                "directory that it is in with `syncline.init(runtime_env={'working_dir': '.'})`, or the module alone with "
                f"`runtime_env={{'py_modules': [{(error.name or 'module').partition('.')[0]}]}}`, or install it on every node.",
                name=error.name,
                path=error.path,
            ) from None


def ship(value: Any, what: str) -> Shipped:
    """`value` as bytes. TypeError, with the part that is to blame, where it cannot be pickled."""
    try:
        pickler = _Pickler(buffer := io.BytesIO())
        pickler.dump(value)
        return Shipped(data=buffer.getvalue(), what=what, refs=tuple(pickler.refs))
    except Exception as error:
        serialization.pack(value, what=what)  # raises with the part of the value that is to blame
        raise TypeError(f"{what} cannot be pickled: {error}") from error


def loaded(value: Any) -> Any:
    """What was shipped; anything else as it is."""
    return value.load() if isinstance(value, Shipped) else value


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    """Leaves references out of the bytes."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.refs: list[ObjectRef[Any]] = []

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, ObjectRef):
            return None
        self.refs.append(value)
        return len(self.refs) - 1


class _Unpickler(pickle.Unpickler):
    """Puts them back."""

    def __init__(self, file: io.BytesIO, refs: tuple[ObjectRef[Any], ...]) -> None:
        super().__init__(file)
        self._refs = refs

    def persistent_load(self, place: int) -> ObjectRef[Any]:
        return self._refs[place]
