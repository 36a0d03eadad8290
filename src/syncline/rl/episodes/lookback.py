"""`InfiniteLookbackBuffer`: the values of an episode's steps, and a lookback before its start.

Indices: 0 is the first value after the lookback; -1 is the last value, and negative indices reach
into the lookback. With `neg_index_as_lookback`, -1 is the last value of the lookback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.rl.envs.space_serialization import gym_space_from_dict, gym_space_to_dict
from syncline.rl.episodes.items import (
    Item,
    equal,
    filled,
    first_leaf,
    map_items,
    one_hot,
    stack,
    with_tuples,
)
from syncline.rl.value_types import Space, StateDict, Tree

Indices = Any
"""An int, a list of ints, a slice, or None for everything after the lookback."""


class InfiniteLookbackBuffer:
    """A list of items or, once finalized, an item of arrays [N, …]; the first `lookback` ones
    precede the start.
    """

    __slots__ = ("data", "finalized", "lookback", "space")

    def __init__(self, data: object = None, lookback: int = 0, space: Space | None = None) -> None:
        self.data: Any = [] if data is None else data
        self.finalized = not isinstance(self.data, list)
        """True if `data` are arrays."""
        self.space = space
        """Space of the items, for one-hot encoding and fill values."""
        self.lookback = min(lookback, self.len_incl_lookback())

    @property
    def space_struct(self) -> Space | None:
        """The space, under RLlib's name for its nested form."""
        return self.space

    def __len__(self) -> int:
        return max(self.len_incl_lookback() - self.lookback, 0)

    def len_incl_lookback(self) -> int:
        """Return the number of items including the lookback."""
        return len(first_leaf(self.data) if self.finalized else self.data)

    # ---- changing ----

    def append(self, item: Item) -> None:
        """Append an item."""
        if not self.finalized:
            self.data.append(item)
            return
        self.data = map_items(
            lambda array, value: np.concatenate([array, np.asarray(value)[None]]), self.data, item
        )

    def extend(self, items: object) -> None:
        """Append items: a list, or arrays if the buffer is finalized."""
        if self.finalized:
            batch = stack(items) if isinstance(items, list) else items
            self.data = map_items(lambda a, b: np.concatenate([a, b]), self.data, batch)
        else:
            self.data.extend(unstacked(items))

    def concat(self, other: InfiniteLookbackBuffer) -> None:
        """Append the items of another buffer without its lookback."""
        self.extend(other.get())

    def pop(self, index: int = -1) -> None:
        """Remove an item; `index` counts from the start of the lookback."""
        if self.finalized:
            self.data = map_items(lambda array: np.delete(array, index, axis=0), self.data)
        else:
            self.data.pop(index)

    def finalize(self) -> None:
        """Convert the items to arrays."""
        if not self.finalized:
            self.data = stack(self.data)
            self.finalized = True

    def set(
        self, new_data: object, *, at_indices: Indices = None, neg_index_as_lookback: bool = False
    ) -> None:
        """Overwrite items.

        Args:
            new_data: The item for an int, otherwise one item per index.
            at_indices: None for all items after the lookback.
            neg_index_as_lookback: Negative indices count back from the start.

        Raises:
            IndexError: An index is out of range, or the number of items does not match.
            TypeError: A finalized buffer cannot hold the new values in its dtype.
        """
        if isinstance(at_indices, list):
            for place, index in enumerate(at_indices):
                self._set_at(
                    self._position(index, neg_index_as_lookback), _item_at(new_data, place)
                )
        elif at_indices is None or isinstance(at_indices, slice):
            self._set_slice(new_data, at_indices or slice(0, None), neg_index_as_lookback)
        else:
            self._set_at(self._position(at_indices, neg_index_as_lookback), new_data)

    def _set_slice(self, new_data: Any, at: slice, neg_index_as_lookback: bool) -> None:
        bounds = self._bounds(at, neg_index_as_lookback, self.len_incl_lookback())
        positions = _clipped(*bounds, self.len_incl_lookback())
        given = len(first_leaf(new_data) if isinstance(new_data, (dict, tuple)) else new_data)
        if given != len(positions):
            raise IndexError(
                f"Cannot set {given} items at {at}, which selects {len(positions)} items. The "
                f"buffer has {len(self)} items and a lookback of {self.lookback}."
            )
        for place, position in enumerate(positions):
            self._set_at(position, _item_at(new_data, place))

    def _set_at(self, position: int | None, item: Item) -> None:
        if position is None:
            raise IndexError(
                f"Cannot set an item out of range. The buffer has {len(self)} items and a "
                f"lookback of {self.lookback}."
            )
        if not self.finalized:
            self.data[position] = item
            return
        map_items(lambda array, value: _assign(array, position, value), self.data, item)

    # ---- reading ----

    def get(
        self,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: object = None,
        one_hot_discrete: bool = False,
        _ignore_last_ts: bool = False,
        _add_last_ts_value: object = None,
    ) -> Any:
        """Return items: one for an int, else a list, or arrays if the buffer is finalized.

        Args:
            indices: None for all items after the lookback.
            neg_index_as_lookback: Negative indices count back from the start.
            fill: Number that fills items out of range. If None, slices omit them, and ints raise
                IndexError.
            one_hot_discrete: Encode Discrete and MultiDiscrete parts as one-hot vectors.

        Raises:
            IndexError: An index is out of range and `fill` is None.
            ValueError: `one_hot_discrete` without a space.
        """
        if one_hot_discrete and self.space is None:
            raise ValueError("one_hot_discrete=True needs a buffer with a space.")
        source = self
        if _ignore_last_ts or _add_last_ts_value is not None:
            source = self._changed_at_end(_ignore_last_ts, _add_last_ts_value)
        if indices is None or isinstance(indices, slice):
            return source._get_slice(
                indices or slice(None), neg_index_as_lookback, fill, one_hot_discrete
            )
        if isinstance(indices, list):
            items = [
                source._get_at(
                    source._position(index, neg_index_as_lookback), index, fill, one_hot_discrete
                )
                for index in indices
            ]
            return stack(items) if self.finalized else items
        position = source._position(int(indices), neg_index_as_lookback)
        return source._get_at(position, indices, fill, one_hot_discrete)

    def _changed_at_end(self, ignore_last: bool, added: object) -> InfiniteLookbackBuffer:
        """Return a buffer without the last item, or with an additional item."""
        data = self.data
        if ignore_last:
            data = map_items(lambda array: array[:-1], data) if self.finalized else data[:-1]
        changed = InfiniteLookbackBuffer(data, space=self.space)
        if added is not None:
            if not self.finalized:
                changed.data = list(changed.data)
            changed.append(added)
        changed.lookback = self.lookback
        return changed

    def _get_at(self, position: int | None, index: int, fill: object, as_one_hot: bool) -> Item:
        if position is None:
            if fill is None:
                raise IndexError(
                    f"The index {index} is out of range. The buffer has {len(self)} items and a "
                    f"lookback of {self.lookback}; pass `fill` for values out of range."
                )
            return filled(self.space, fill, as_one_hot)
        item = _item_at(self.data, position) if self.finalized else self.data[position]
        return one_hot(item, self.space) if as_one_hot and self.space is not None else item

    def _get_slice(
        self, indices: slice, neg_index_as_lookback: bool, fill: object, as_one_hot: bool
    ) -> Tree:
        size = self.len_incl_lookback()
        start, stop, step = self._bounds(indices, neg_index_as_lookback, size)
        if fill is None:
            return self._items(_clipped(start, stop, step, size), as_one_hot)
        positions = range(start, stop, step)
        inside = [place for place in positions if 0 <= place < size]
        if len(inside) == len(positions):
            return self._items(positions, as_one_hot)
        value = filled(self.space, fill, as_one_hot)
        before = positions.index(inside[0]) if inside else len(positions)
        after = len(positions) - before - len(inside)
        if not self.finalized:
            items: list[Item] = self._items(inside, as_one_hot)
            return [value] * before + items + [value] * after
        if self.space is None and inside:
            value = map_items(lambda array: np.full(array.shape[1:], fill), self.data)
        if not inside:
            return stack([value] * before)
        return map_items(
            lambda array, one: np.concatenate(
                [np.stack([one] * n) for n in [before] if n]
                + [array]
                + [np.stack([one] * n) for n in [after] if n]
            ),
            self._items(inside, as_one_hot),
            value,
        )

    def _items(self, positions: Sequence[int], as_one_hot: bool) -> Tree:
        """Return the items at existing, evenly spaced positions."""
        if not positions:
            at = slice(0, 0)
        else:
            step = positions[1] - positions[0] if len(positions) > 1 else 1
            end = positions[-1] + step
            at = slice(positions[0], None if end < 0 else end, step)
        if self.finalized:
            items = map_items(lambda array: array[at], self.data)
            return one_hot(items, self.space) if as_one_hot and self.space is not None else items
        items = self.data[at]
        if as_one_hot and self.space is not None:
            return [one_hot(item, self.space) for item in items]
        return items

    # ---- indices ----

    def _position(self, index: int, neg_index_as_lookback: bool) -> int | None:
        """Return the position in `data`; None if out of range."""
        size = self.len_incl_lookback()
        from_start = index >= 0 or neg_index_as_lookback
        position = index + (self.lookback if from_start else size)
        return position if 0 <= position < size else None

    def _bounds(
        self, indices: slice, neg_index_as_lookback: bool, size: int
    ) -> tuple[int, int, int]:
        """Return start, stop and step in `data`; start and stop may be out of range."""
        step = 1 if indices.step is None else indices.step

        def absolute(bound: int | None, default: int) -> int:
            if bound is None:
                return default
            return bound + (self.lookback if bound >= 0 or neg_index_as_lookback else size)

        first, end = (self.lookback, size) if step > 0 else (size - 1, self.lookback - 1)
        return absolute(indices.start, first), absolute(indices.stop, end), step

    # ---- the rest ----

    def __getitem__(self, indices: Indices) -> Tree:
        return self.get(indices)

    def __setitem__(self, indices: Indices, value: object) -> None:
        self.set(value, at_indices=indices)

    def __add__(self, other: InfiniteLookbackBuffer | Sequence[Tree]) -> InfiniteLookbackBuffer:
        """Append the items of a list or another buffer (without its lookback), or add a number to
        every number; return a new buffer.
        """
        if self.finalized:
            raise RuntimeError("Cannot append to a finalized buffer. Append before `finalize()`.")
        if isinstance(other, InfiniteLookbackBuffer):
            data = [*self.data, *unstacked(other.get())]
        elif isinstance(other, (int, float, complex)):
            numbers = (int, float, complex)
            data = [each + other if isinstance(each, numbers) else each for each in self.data]
        else:
            data = [*self.data, *other]
        return InfiniteLookbackBuffer(data, self.lookback, self.space)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InfiniteLookbackBuffer):
            return NotImplemented
        return (
            self.finalized == other.finalized
            and self.lookback == other.lookback
            and self.space == other.space
            and self.len_incl_lookback() == other.len_incl_lookback()
            and (
                equal(self.data, other.data)
                if self.finalized
                else all(equal(a, b) for a, b in zip(self.data, other.data, strict=True))
            )
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        before = self.get(slice(-self.lookback, 0), neg_index_as_lookback=True)
        return f"{type(self).__name__}({before} <- lookback({self.lookback}) | {self.get()})"

    def get_state(self) -> StateDict:
        """Return the buffer as plain data."""
        return {
            "data": self.data,
            "lookback": self.lookback,
            "finalized": self.finalized,
            "space": gym_space_to_dict(self.space),
        }

    @staticmethod
    def from_state(state: StateDict) -> InfiniteLookbackBuffer:
        """Rebuild the buffer from `get_state`, also after a round trip through msgpack."""
        space = gym_space_from_dict(state["space"])
        data = state["data"]
        if state["finalized"]:
            data = with_tuples(data, space)
        else:
            data = [with_tuples(item, space) for item in data]
        buffer = InfiniteLookbackBuffer(data, space=space)
        buffer.finalized = state["finalized"]
        buffer.lookback = state["lookback"]
        return buffer


def unstacked(items: object) -> list[Item]:
    """Return a list of items from a list, or from arrays [N, …]."""
    if isinstance(items, list):
        return items
    return [_item_at(items, place) for place in range(len(first_leaf(items)))]


def length_of(data: object) -> int:
    """Return the number of items of a buffer, a list or arrays [N, …]."""
    if isinstance(data, InfiniteLookbackBuffer):
        return data.len_incl_lookback()
    return len(data) if isinstance(data, list) else len(first_leaf(data))


def as_buffer(data: object, lookback: int, space: Space | None = None) -> InfiniteLookbackBuffer:
    """Return a buffer unchanged; convert a list or arrays to a buffer."""
    if isinstance(data, InfiniteLookbackBuffer):
        return data
    return InfiniteLookbackBuffer(data, lookback, space)


def emptied(buffer: InfiniteLookbackBuffer) -> InfiniteLookbackBuffer:
    """Return a buffer of the same kind without items."""
    return InfiniteLookbackBuffer(buffer.get(slice(0, 0)), space=buffer.space)


def _item_at(batch: object, place: int) -> Item:
    if isinstance(batch, list):
        return batch[place]
    return map_items(lambda array: array[place], batch)


def _assign(array: np.ndarray, position: int, value: object) -> None:
    new = np.asarray(value)
    if not np.can_cast(new.dtype, array.dtype, "same_kind"):
        raise TypeError(
            f"Cannot store values of the dtype {new.dtype} in an array of {array.dtype}. Change "
            "the values before the episode is converted to arrays."
        )
    array[position] = new


def _clipped(start: int, stop: int, step: int, size: int) -> range:
    """Return the existing positions of a slice; clip a start out of range."""
    if step > 0:
        return range(max(start, 0), min(stop, size), step)
    return range(min(start, size - 1), max(stop, -1), step)
