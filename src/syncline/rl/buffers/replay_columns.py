"""`ReplayColumns`: the latest steps of every environment, for off-policy algorithms.

Covered: storing fragments, uniform and prioritized sampling, n-step transitions, sequences. Not
covered: RLlib's buffers of episodes (`episode_buffers`).

Every environment has a ring of rows in the order of time. A row contains an observation and the
action that followed it. An episode of L steps has L + 1 rows, the last without an action, so the
observation after row i is in row i + 1. The newest row of a ring has no action either: it contains
the current observation of the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.rl.buffers.priorities import Priorities
from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, leaves, map_tree
from syncline.rl.value_types import Batch, StateDict

INDICES = "batch_indexes"
WEIGHTS = "weights"
N_STEP = "n_step"
DISCOUNTS = "discounts"


@dataclass(frozen=True, kw_only=True)
class ReplayStatistics:
    """Counts and memory of a buffer."""

    num_steps: int
    """Stored steps that can be sampled."""
    num_steps_added: int
    """Steps added so far."""
    capacity: int
    """Total number of rows of all rings."""
    bytes: int
    """Memory of the columns in bytes."""


class ReplayColumns:
    """A ring of rows for each environment.

    Not thread-safe.

    Args:
        capacity: Total number of rows of all rings.
        num_envs: Number of rings.
        seed: Seed for sampling.
        alpha: Exponent of priorities; 0 samples uniformly.
    """

    def __init__(
        self, capacity: int, *, num_envs: int = 1, seed: int | None = None, alpha: float = 0.0
    ) -> None:
        if capacity < 2 * num_envs:
            raise ValueError(
                f"`capacity={capacity}` is too small for {num_envs} environments: each needs at "
                "least 2 rows."
            )
        self.capacity = capacity
        self._random = np.random.Generator(np.random.Philox(seed))
        self._alpha = alpha
        self._rows = capacity // num_envs
        self._heads = np.zeros(num_envs, np.int64)
        self._streams: dict[int, int] = {}
        size = self._rows * num_envs
        self._is_step = np.zeros(size, bool)
        self._priorities = Priorities(size) if alpha else None
        self._columns: dict[str, Tree] | None = None
        self._stored = 0
        self._added = 0

    # -- storing

    def add(self, fragment: Fragment) -> None:
        """Store the steps of a fragment."""
        if fragment.valid is not None:
            for each in unpadded(fragment):
                self.add(each)
            return
        if self._columns is None:
            self._allocate(fragment)
        streams = np.array([self._stream(int(env)) for env in fragment.env])
        done = fragment.done
        length = fragment.length
        counts = length + done.sum(axis=0)
        if (counts >= self._rows).any():
            raise ValueError(
                f"A ring has {self._rows} rows (`capacity={self.capacity}` for "
                f"{len(self._heads)} environments), fewer than the {int(counts.max()) + 1} rows of "
                "a fragment: raise `capacity` or lower `rollout_fragment_length`."
            )
        ends_before = np.cumsum(done, axis=0) - done
        position = self._heads[streams] + np.arange(length)[:, None] + ends_before
        rows = streams * self._rows + position % self._rows
        self._write(rows, fragment, streams, position + 1, done)
        self._heads[streams] += counts
        self._added += fragment.num_steps

    def _allocate(self, fragment: Fragment) -> None:
        """Create the columns with the shapes and dtypes of the first fragment."""
        size = len(self._is_step)
        self._columns = map_tree(
            lambda leaf: np.zeros((size, *leaf.shape[2:]), leaf.dtype), fragment.step_columns()
        )

    def _stream(self, env: int) -> int:
        stream = self._streams.setdefault(env, len(self._streams))
        if stream >= len(self._heads):
            self._resize(2 * len(self._heads))
        return stream

    def _resize(self, num_rings: int) -> None:
        """Divide the capacity among more rings; each keeps its newest rows."""
        length = self.capacity // num_rings
        if length < 2:
            raise ValueError(
                f"`capacity={self.capacity}` is too small for {num_rings} trajectories: each needs "
                "at least 2 rows."
            )
        before = self._heads
        counts = np.minimum(before, min(length, self._rows) - 1)
        old = np.concatenate(
            [
                ring * self._rows + np.arange(head - count, head + 1) % self._rows
                for ring, (head, count) in enumerate(zip(before, counts, strict=True))
            ]
        )
        new = np.concatenate(
            [ring * length + np.arange(count + 1) for ring, count in enumerate(counts)]
        )
        size = length * num_rings

        def moved(leaf: np.ndarray) -> np.ndarray:
            made = np.zeros((size, *leaf.shape[1:]), leaf.dtype)
            made[new] = leaf[old]
            return made

        assert self._columns is not None
        self._columns = map_tree(moved, self._columns)
        self._is_step = moved(self._is_step)
        self._stored = int(self._is_step.sum())
        if self._priorities is not None:
            known, self._priorities = self._priorities, Priorities(size)
            self._priorities.set(new, known.get(old))
            self._priorities.largest = known.largest
        self._rows = length
        self._heads = np.concatenate([counts, np.zeros(num_rings - len(counts), np.int64)])

    def _write(
        self,
        rows: np.ndarray,
        fragment: Fragment,
        streams: np.ndarray,
        following: np.ndarray,
        done: np.ndarray,
    ) -> None:
        """Write steps, observations after ends, and the newest observations."""
        assert self._columns is not None
        flat = rows.reshape(-1)
        for name, column in fragment.step_columns().items():
            map_tree(
                lambda stored, new: _put(stored, flat, new.reshape(-1, *new.shape[2:])),
                self._columns[name],
                column,
            )
        self._mark(flat, True)
        heads = streams * self._rows + (following[-1] + done[-1]) % self._rows
        observations = self._columns[Columns.OBS]
        map_tree(lambda stored, new: _put(stored, heads, new[-1]), observations, fragment.obs)
        self._mark(heads, False)
        times, trajectories = fragment.final_at.T
        if len(times):
            ends = streams[trajectories] * self._rows + following[times, trajectories] % self._rows
            map_tree(lambda stored, new: _put(stored, ends, new), observations, fragment.final_obs)
            self._mark(ends, False)

    def _mark(self, rows: np.ndarray, is_step: bool) -> None:
        self._stored += is_step * len(rows) - int(self._is_step[rows].sum())
        self._is_step[rows] = is_step
        if self._priorities is not None:
            self._priorities.set(rows, self._priorities.largest if is_step else 0.0)

    # -- drawing

    @property
    def num_steps(self) -> int:
        """Number of steps that can be sampled."""
        return self._stored

    def __len__(self) -> int:
        return self.num_steps

    def sample(
        self,
        num_items: int,
        *,
        n_step: int | tuple[int, int] = 1,
        gamma: float = 0.99,
        beta: float = 0.0,
    ) -> Batch:
        """Draw transitions with replacement; return columns [B, …].

        `rewards` are discounted sums of up to `n_step` rewards, `new_obs` the observations after
        them, and `terminateds` is True if these are terminal. `n_step` is the number n of rewards;
        `discounts` is gamma^n, or 0 after terminal states. `weights` are importance weights of at
        most 1 (only with priorities). `batch_indexes` are the rows, for `update_priorities`.

        Args:
            num_items: B.
            n_step: Number of rewards, or a range (inclusive) to draw it from.
            gamma: Discount factor.
            beta: Exponent of the importance weights; 0 for weights of 1.
        """
        assert self._columns is not None
        rows = self._draw(num_items)
        if isinstance(n_step, int):
            steps = np.full(num_items, n_step)
        else:
            steps = self._random.integers(n_step[0], n_step[1] + 1, size=num_items)
        batch = {
            name: map_tree(lambda stored: stored[rows], column)
            for name, column in self._columns.items()
        }
        if n_step == 1:
            last, taken = rows, steps
        else:
            last, batch[Columns.REWARDS], taken = self._n_step(rows, steps, gamma)
            batch[Columns.TERMINATEDS] = self._columns[Columns.TERMINATEDS][last]
            batch[Columns.TRUNCATEDS] = self._columns[Columns.TRUNCATEDS][last]
        following = self._next(last)
        batch[Columns.NEXT_OBS] = map_tree(
            lambda stored: stored[following], self._columns[Columns.OBS]
        )
        batch[N_STEP] = taken
        factors = gamma**taken if n_step != 1 else gamma
        batch[DISCOUNTS] = np.where(batch[Columns.TERMINATEDS], 0.0, factors).astype(np.float32)
        if self._priorities is not None:
            batch[WEIGHTS] = self._weights(rows, beta)
        batch[INDICES] = rows
        return batch

    def _draw(self, count: int) -> np.ndarray:
        if self._priorities is not None:
            return self._priorities.draw(self._random.random(count))
        filled = np.minimum(self._heads + 1, self._rows)
        ends = np.cumsum(filled)
        rows = self._places_of(self._random.integers(ends[-1], size=count), filled, ends)
        missing = np.flatnonzero(~self._is_step[rows])
        while len(missing):
            places = self._random.integers(ends[-1], size=len(missing))
            rows[missing] = self._places_of(places, filled, ends)
            missing = missing[~self._is_step[rows[missing]]]
        return rows

    def _places_of(self, numbers: np.ndarray, filled: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Convert positions among the filled rows, counted ring by ring, to row indices."""
        if len(ends) == 1:
            return numbers
        streams = np.searchsorted(ends, numbers, side="right")
        found: np.ndarray = streams * self._rows + numbers - (ends - filled)[streams]
        return found

    def _next(self, rows: np.ndarray) -> np.ndarray:
        within = rows % self._rows + 1
        return rows + 1 - np.where(within == self._rows, self._rows, 0)

    def _n_step(
        self, rows: np.ndarray, steps: np.ndarray, gamma: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the last row of each transition, its discounted reward and its length."""
        assert self._columns is not None
        stored = self._columns[Columns.REWARDS]
        rewards = stored[rows].copy()
        last, taken = rows, np.ones(len(rows), np.int64)
        for number in range(1, int(steps.max())):
            following = self._next(last)
            goes_on = self._is_step[following] & (taken == number) & (steps > number)
            if not goes_on.any():
                break
            rewards[goes_on] += gamma**number * stored[following[goes_on]]
            last = np.where(goes_on, following, last)
            taken += goes_on
        return last, rewards, taken

    def _weights(self, rows: np.ndarray, beta: float) -> np.ndarray:
        assert self._priorities is not None
        if not beta:
            return np.ones(len(rows), np.float32)
        probabilities = self._priorities.get(rows) / self._priorities.total
        weights = (self.num_steps * probabilities) ** -beta
        return np.asarray(weights / weights.max(), np.float32)

    def update_priorities(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """Set the priorities of sampled rows from their errors: (|error| + 1e-6) ** alpha."""
        if self._priorities is None:
            return
        rows, errors = rows[self._is_step[rows]], errors[self._is_step[rows]]
        priorities = (np.abs(errors) + 1e-6) ** self._alpha
        self._priorities.set(rows, priorities)
        self._priorities.largest = max(self._priorities.largest, float(priorities.max()))

    # -- state

    def statistics(self) -> ReplayStatistics:
        """Return counts and memory of the buffer."""
        size = sum(leaf.nbytes for leaf in leaves(self._columns or {}))
        return ReplayStatistics(
            num_steps=self.num_steps,
            num_steps_added=self._added,
            capacity=self.capacity,
            bytes=size,
        )

    def live_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the range of complete rows in each ring: first row and the row after the last.

        Rows are numbered from the first row ever added to a ring. They never change.
        """
        return np.maximum(self._heads - self._rows + 1, 0), self._heads.copy()

    def rows(self, starts: np.ndarray, stops: np.ndarray) -> dict[str, Tree]:
        """Return the columns of rows, ring by ring."""
        assert self._columns is not None
        places = self._places(starts, stops)
        return {
            name: map_tree(lambda leaf: leaf[places], column)
            for name, column in self._columns.items()
        }

    def _places(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [
                ring * self._rows + np.arange(start, stop) % self._rows
                for ring, (start, stop) in enumerate(zip(starts, stops, strict=True))
            ]
        ).astype(np.int64)

    def get_state(self, *, rows: bool = True) -> StateDict:
        """Return everything that later samples depend on; without `rows`, omit complete rows."""
        state = {
            "random": self._random.bit_generator.state,
            "added": self._added,
            "streams": dict(self._streams),
            "heads": self._heads.copy(),
            "size": len(self._is_step),
            "is_step": np.packbits(self._is_step),
            "priorities": self._priorities and self._priorities.get_state(),
        }
        if rows:
            return {**state, "columns": self._columns}
        newest = self._columns and self.rows(self._heads, self._heads + 1)
        return {**state, "newest": newest}

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned; "rows" may replace "columns"."""
        if state["size"] != len(self._is_step) or len(state["heads"]) != len(self._heads):
            raise ValueError(
                f"The saved buffer has {state['size']} rows for {len(state['heads'])} "
                f"environments, but this one has {len(self._is_step)} for {len(self._heads)}: "
                "restore with the same `capacity` and number of environments."
            )
        self._random.bit_generator.state = state["random"]
        self._added = state["added"]
        self._streams = dict(state["streams"])
        self._heads = state["heads"].copy()
        if "columns" in state:
            self._columns = map_tree(np.copy, state["columns"]) if state["columns"] else None
        elif state["newest"] is not None:
            self._set_rows(state["newest"], self._heads, self._heads + 1)
            for starts, stops, columns in state["rows"]:
                self._set_rows(columns, starts, stops)
        self._is_step = np.unpackbits(state["is_step"], count=state["size"]).astype(bool)
        self._stored = int(self._is_step.sum())
        if self._priorities is not None and state["priorities"] is not None:
            self._priorities.set_state(state["priorities"])

    def _set_rows(self, columns: dict[str, Tree], starts: np.ndarray, stops: np.ndarray) -> None:
        """Write the rows that are still live."""
        if self._columns is None:
            size = len(self._is_step)
            self._columns = map_tree(
                lambda leaf: np.zeros((size, *leaf.shape[1:]), leaf.dtype), columns
            )
        live = np.concatenate(
            [
                np.arange(start, stop) > head - self._rows
                for start, stop, head in zip(starts, stops, self._heads, strict=True)
            ]
        )
        places = self._places(starts, stops)[live]
        map_tree(lambda stored, new: _put(stored, places, new[live]), self._columns, columns)


def unpadded(fragment: Fragment) -> list[Fragment]:
    """Split a padded fragment into its trajectories; leave out empty ones."""
    assert fragment.valid is not None
    lengths = fragment.valid.sum(axis=0)
    return [_trajectory(fragment, int(n), int(lengths[n])) for n in np.flatnonzero(lengths)]


def _trajectory(fragment: Fragment, n: int, length: int) -> Fragment:
    """Return the first `length` steps of a trajectory."""
    own = (fragment.final_at[:, 1] == n) & (fragment.final_at[:, 0] < length)
    steps = (slice(length), slice(n, n + 1))
    return replace(
        fragment,
        obs=map_tree(lambda leaf: leaf[: length + 1, n : n + 1], fragment.obs),
        columns=map_tree(lambda leaf: leaf[steps], fragment.columns),
        rewards=fragment.rewards[steps],
        terminated=fragment.terminated[steps],
        truncated=fragment.truncated[steps],
        final_at=fragment.final_at[own] * (1, 0),
        final_obs=map_tree(lambda leaf: leaf[own], fragment.final_obs),
        valid=None,
        states=None,
        state_every=0,
        env=fragment.env[n : n + 1],
    )


def _put(stored: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    stored[rows] = values
