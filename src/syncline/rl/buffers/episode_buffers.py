"""RLlib's replay buffers of episodes, for programs that call or subclass them.

Parts of an episode are joined by its id. When the buffer exceeds its capacity, the oldest episodes
are evicted. Covered: uniform and prioritized sampling of transitions and sequences, for one agent
or for each module of several agents. Not covered: the faster buffers that algorithms use by default
(`replay_columns`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from syncline.rl.buffers.priorities import Priorities
from syncline.rl.buffers.replay_columns import INDICES, N_STEP, WEIGHTS
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, stack_trees
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.value_types import StateDict

Key = tuple[str, Any]
"""Id of an episode and of its agent."""
NStep = int | tuple[int, int] | None
BufferT = TypeVar("BufferT", bound="EpisodeReplayBuffer")


class EpisodeReplayBuffer:
    """Samples steps of episodes uniformly. Not thread-safe.

    Args:
        capacity: Number of steps.
        batch_size_B: Default number of rows in a batch.
        batch_length_T: Default number of steps in a row.
        seed: Seed for sampling.
        kwargs: Options of other buffers, without effect.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        batch_size_B: int = 16,
        batch_length_T: int = 64,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.capacity = capacity
        self.batch_size_B = batch_size_B
        self.batch_length_T = batch_length_T
        self.rng = np.random.default_rng(seed)
        self.episodes: OrderedDict[Key, SingleAgentEpisode] = OrderedDict()
        self._num_steps = 0
        self._added = 0
        self._sampled = 0
        self._ends: np.ndarray | None = None

    # -- adding

    def add(self, episodes: SingleAgentEpisode | Sequence[SingleAgentEpisode]) -> None:
        """Add episodes, or further parts of stored episodes."""
        if isinstance(episodes, SingleAgentEpisode):
            episodes = [episodes]
        for episode in episodes:
            key = (episode.id_, episode.agent_id)
            known = self.episodes.get(key)
            start = 0 if known is None else len(known)
            if known is None:
                # A copy, because the program may continue its episode; the lookback is not needed.
                self.episodes[key] = episode.slice(slice(None), len_lookback_buffer=0)
            else:
                known.concat_episode(episode)
            self._num_steps += len(episode)
            self._added += len(episode)
            self._on_added(key, range(start, start + len(episode)))
        while self._num_steps > self.capacity and len(self.episodes) > 1:
            key, oldest = self.episodes.popitem(last=False)
            self._num_steps -= len(oldest)
            self._on_removed(key)
        self._ends = None

    def _on_added(self, key: Key, steps: range) -> None:
        """Prepare sampling of new steps."""

    def _on_removed(self, key: Key) -> None:
        """Remove the steps of an episode."""

    # -- drawing

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,
        batch_length_T: int | None = None,
        n_step: NStep = None,
        gamma: float = 0.99,
        beta: float = 0.0,
        include_infos: bool = False,
        include_extra_model_outputs: bool = False,
        sample_episodes: bool = False,
        **kwargs: object,
    ) -> Tree:
        """Draw transitions or sequences, with replacement.

        Returns:
            With `sample_episodes`, a list of episodes: transitions become episodes of one step,
            whose reward is the discounted sum of `n_step` rewards; sequences become episodes of up
            to T steps. Otherwise columns: with `n_step`, of transitions, [B, …]; without it, of
            sequences, [B, T, …], in which the end of an episode is followed by another episode.

        Args:
            num_items: B; alias of `batch_size_B`.
            batch_size_B: B.
            batch_length_T: T.
            n_step: Number of rewards in a transition, or a range (inclusive) to draw it from.
            gamma: Discount factor of these rewards.
            beta: Exponent of importance weights; 0 for weights of 1.
            include_infos: Add infos.
            include_extra_model_outputs: Add the other outputs of the module.
            sample_episodes: Return episodes.
            kwargs: Options of other buffers, without effect.

        Raises:
            ValueError: The buffer is empty.
        """
        count = num_items or batch_size_B or self.batch_size_B
        if not self._num_steps:
            raise ValueError("The buffer is empty: add episodes with at least one step first.")
        if batch_length_T is None and (sample_episodes or n_step is not None):
            made = self._transitions(count, n_step or 1, gamma, beta, include_infos)
            return made if sample_episodes else columns_of_transitions(made)
        length = batch_length_T or self.batch_length_T
        self._sampled += count * length
        if sample_episodes:
            return [
                self._slice(key, start, start + length) for key, start in self._draw(count, beta)[0]
            ]
        rows = [self._sequence(length) for _ in range(count)]
        return {name: stack_trees(np.stack, [row[name] for row in rows]) for name in rows[0]}

    def _draw(self, count: int, beta: float) -> tuple[list[tuple[Key, int]], np.ndarray]:
        """Return episodes and steps, and their weights."""
        if self._ends is None:
            self._ends = np.cumsum([len(episode) for episode in self.episodes.values()])
            self._keys = list(self.episodes)
        places = self.rng.integers(self._ends[-1], size=count)
        numbers = np.searchsorted(self._ends, places, side="right")
        begins = np.concatenate([[0], self._ends[:-1]])
        drawn = [
            (self._keys[number], int(place - begins[number]))
            for number, place in zip(numbers, places, strict=True)
        ]
        return drawn, np.ones(count, np.float32)

    def _transitions(
        self, count: int, n_step: int | tuple[int, int], gamma: float, beta: float, infos: bool
    ) -> list[SingleAgentEpisode]:
        low, high = (n_step, n_step) if isinstance(n_step, int) else n_step
        lengths = self.rng.integers(low, high + 1, size=count)
        drawn, weights = self._draw(count, beta)
        self._sampled += count
        return [
            self._transition(key, start, int(length), gamma, float(weight), infos)
            for (key, start), length, weight in zip(drawn, lengths, weights, strict=True)
        ]

    def _transition(
        self, key: Key, start: int, length: int, gamma: float, weight: float, infos: bool
    ) -> SingleAgentEpisode:
        """Return up to `length` steps as an episode of one step."""
        episode = self.episodes[key]
        stop = min(start + length, len(episode))
        rewards = episode.get_rewards(slice(start, stop))
        at_end = stop == len(episode)
        outputs = {
            name: [buffer.get(start)] for name, buffer in episode.extra_model_outputs.items()
        }
        return SingleAgentEpisode(
            id_=episode.id_,
            agent_id=episode.agent_id,
            module_id=episode.module_id,
            observations=[episode.get_observations(start), episode.get_observations(stop)],
            infos=[episode.get_infos(start), episode.get_infos(stop)] if infos else None,
            actions=[episode.get_actions(start)],
            rewards=[float(sum(gamma**k * reward for k, reward in enumerate(rewards)))],
            terminated=at_end and episode.is_terminated,
            truncated=at_end and episode.is_truncated,
            extra_model_outputs={**outputs, N_STEP: [stop - start], WEIGHTS: [weight]},
            observation_space=episode.observation_space,
            action_space=episode.action_space,
            t_started=episode.t_started + start,
            len_lookback_buffer=0,
        )

    def _slice(self, key: Key, start: int, stop: int) -> SingleAgentEpisode:
        episode = self.episodes[key]
        return episode.slice(slice(start, min(stop, len(episode))), len_lookback_buffer=0)

    def _sequence(self, length: int) -> dict[str, Tree]:
        """Return a row of sequences: observations, previous rewards and following actions."""
        names = (Columns.OBS, Columns.ACTIONS, Columns.REWARDS)
        flags = ("is_first", "is_last", "is_terminated", "is_truncated")
        row: dict[str, list[Any]] = {name: [] for name in (*names, *flags)}
        while len(row[Columns.OBS]) < length:
            key, start = self._draw(1, 0.0)[0][0]
            episode = self.episodes[key]
            start = 0 if row[Columns.OBS] else start  # later episodes start at their beginning
            count = min(len(episode) - start + 1, length - len(row[Columns.OBS]))
            for t in range(start, start + count):
                action = min(t, len(episode) - 1)  # the last observation has no action
                at_end = t == len(episode)
                row[Columns.OBS].append(episode.get_observations(t))
                row[Columns.ACTIONS].append(episode.get_actions(action))
                row[Columns.REWARDS].append(0.0 if t == 0 else episode.get_rewards(t - 1))
                row["is_first"].append(t == start)
                row["is_last"].append(t == start + count - 1)
                row["is_terminated"].append(at_end and episode.is_terminated)
                row["is_truncated"].append(at_end and episode.is_truncated)
        return {name: stack_trees(np.stack, values) for name, values in row.items()}

    # -- numbers and state

    def __len__(self) -> int:
        return self._num_steps

    def get_num_episodes(self) -> int:
        """Return the number of episodes."""
        return len(self.episodes)

    def get_num_timesteps(self) -> int:
        """Return the number of steps."""
        return self._num_steps

    def get_added_timesteps(self) -> int:
        """Return the number of steps added so far."""
        return self._added

    def get_sampled_timesteps(self) -> int:
        """Return the number of steps sampled so far."""
        return self._sampled

    def get_state(self) -> StateDict:
        """Return everything that later samples depend on."""
        return {
            "episodes": [episode.get_state() for episode in self.episodes.values()],
            "random": self.rng.bit_generator.state,
            "added": self._added,
            "sampled": self._sampled,
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        for key in list(self.episodes):
            self._on_removed(key)
        self.episodes.clear()
        self._num_steps, self._ends = 0, None
        for saved in state["episodes"]:
            episode = SingleAgentEpisode.from_state(saved)
            key = (episode.id_, episode.agent_id)
            self.episodes[key] = episode
            self._num_steps += len(episode)
            self._on_added(key, range(len(episode)))
        self.rng.bit_generator.state = state["random"]
        self._added, self._sampled = state["added"], state["sampled"]


class PrioritizedEpisodeReplayBuffer(EpisodeReplayBuffer):
    """Samples steps in proportion to their priorities (Schaul et al. 2016,
    https://arxiv.org/abs/1511.05952). New steps get the largest priority so far.

    Args:
        capacity: Number of steps.
        alpha: Exponent of priorities; 0 samples uniformly.
        kwargs: Options of `EpisodeReplayBuffer`.
    """

    def __init__(self, capacity: int = 10_000, *, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(capacity, **kwargs)
        if alpha < 0:
            raise ValueError(f"`alpha={alpha}` must be at least 0.")
        self._alpha = alpha
        self._priorities = Priorities(capacity)
        self._slots: dict[Key, list[int]] = {}
        self._steps: dict[int, tuple[Key, int]] = {}
        self._free: list[int] = list(range(capacity - 1, -1, -1))
        self._last = np.zeros(0, np.int64)

    def _on_added(self, key: Key, steps: range) -> None:
        missing = len(steps) - len(self._free)
        if missing > 0:  # until older episodes are evicted
            size = len(self._steps) + len(self._free)
            self._free = [*range(size + missing - 1, size - 1, -1), *self._free]
            self._grow(size + missing)
        own = self._slots.setdefault(key, [])
        for step in steps:
            slot = self._free.pop()
            own.append(slot)
            self._steps[slot] = (key, step)
        self._priorities.set(np.array(own[steps.start :], np.int64), self._priorities.largest)

    def _grow(self, size: int) -> None:
        known, self._priorities = self._priorities, Priorities(size)
        slots = np.array(list(self._steps), np.int64)
        self._priorities.set(slots, known.get(slots))
        self._priorities.largest = known.largest

    def _on_removed(self, key: Key) -> None:
        slots = self._slots.pop(key)
        for slot in slots:
            del self._steps[slot]
        self._priorities.set(np.array(slots, np.int64), 0.0)
        self._free.extend(slots)

    def _draw(self, count: int, beta: float) -> tuple[list[tuple[Key, int]], np.ndarray]:
        self._last = self._priorities.draw(self.rng.random(count))
        drawn = [self._steps[int(slot)] for slot in self._last]
        probabilities = self._priorities.get(self._last) / self._priorities.total
        weights = (self._num_steps * probabilities) ** -beta
        return drawn, (weights / weights.max()).astype(np.float32)

    def sample(self, num_items: int | None = None, **options: Any) -> Any:
        """Draw transitions; see `EpisodeReplayBuffer.sample`. Adds the column `batch_indexes`."""
        if options.get("batch_length_T") is None:
            options["n_step"] = options.get("n_step") or 1
        found = super().sample(num_items, **options)
        if isinstance(found, dict) and WEIGHTS in found:
            found[INDICES] = self._last
        return found

    def update_priorities(self, priorities: np.ndarray, module_id: str | None = None) -> None:
        """Set the priorities of the last sample, for example to absolute errors."""
        priorities = np.asarray(priorities, np.float64)
        if len(priorities) != len(self._last):
            raise ValueError(
                f"Got {len(priorities)} priorities, but the last sample has {len(self._last)} "
                "steps."
            )
        if (priorities <= 0).any():
            raise ValueError(
                f"Priorities must be positive, but the smallest is {priorities.min()}: add a small "
                "number to the errors."
            )
        self._priorities.set(self._last, priorities**self._alpha)
        largest = float(priorities.max()) ** self._alpha
        self._priorities.largest = max(self._priorities.largest, largest)

    def get_state(self) -> StateDict:
        """Return everything that later samples depend on."""
        slots = [slot for key in self.episodes for slot in self._slots[key]]
        return {
            **super().get_state(),
            "priorities": self._priorities.get(np.array(slots, np.int64)),
            "slots": slots,
            "free": list(self._free),
            "largest": self._priorities.largest,
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        super().set_state(state)
        slots = iter(state["slots"])
        self._slots = {
            key: [next(slots) for _ in range(len(episode))]
            for key, episode in self.episodes.items()
        }
        self._steps = {
            slot: (key, step) for key, own in self._slots.items() for step, slot in enumerate(own)
        }
        self._free = list(state["free"])
        self._priorities = Priorities(len(self._steps) + len(self._free))
        self._priorities.set(np.array(state["slots"], np.int64), state["priorities"])
        self._priorities.largest = state["largest"]


class MultiAgentEpisodeReplayBuffer:
    """One buffer per module, with the episodes of its agents.

    Args:
        capacity: Number of steps per module.
        kwargs: Options of `EpisodeReplayBuffer`.
    """

    buffer_class: type[EpisodeReplayBuffer] = EpisodeReplayBuffer

    def __init__(self, capacity: int = 10_000, **kwargs: Any) -> None:
        self.capacity = capacity
        self._options = kwargs
        self.buffers: dict[str, Any] = {}

    def add(self, episodes: Any) -> None:
        """Add episodes of several agents, or further parts of stored episodes."""
        for episode in episodes if isinstance(episodes, (list, tuple)) else [episodes]:
            for own in episode.agent_episodes.values():
                self._buffer(own.module_id).add(own)

    def _buffer(self, module_id: str) -> Any:
        if module_id not in self.buffers:
            self.buffers[module_id] = self.buffer_class(self.capacity, **self._options)
        return self.buffers[module_id]

    def sample(
        self,
        num_items: int | dict[str, int] | None = None,
        *,
        modules_to_sample: Sequence[str] | None = None,
        sample_episodes: bool = True,
        **options: object,
    ) -> Tree:
        """Draw for each module; return a list of episodes, or columns by module id.

        Args:
            num_items: Number of items per module, or a dictionary by module id.
            modules_to_sample: Modules to sample; by default all modules with steps.
            sample_episodes: Return episodes.
            options: See `EpisodeReplayBuffer.sample`.
        """
        found = {
            module_id: buffer.sample(
                num_items.get(module_id) if isinstance(num_items, dict) else num_items,
                sample_episodes=sample_episodes,
                **options,
            )
            for module_id, buffer in self.buffers.items()
            if len(buffer) and (modules_to_sample is None or module_id in modules_to_sample)
        }
        return [each for own in found.values() for each in own] if sample_episodes else found

    def __len__(self) -> int:
        return self.get_num_timesteps()

    def get_num_timesteps(self, module_id: str | None = None) -> int:
        """Return the number of steps of a module, or of all modules."""
        return sum(len(buffer) for key, buffer in self.buffers.items() if module_id in (None, key))

    def get_num_episodes(self, module_id: str | None = None) -> int:
        """Return the number of agent episodes of a module, or of all modules."""
        return sum(
            buffer.get_num_episodes()
            for key, buffer in self.buffers.items()
            if module_id in (None, key)
        )

    def get_state(self) -> StateDict:
        """Return everything that later samples depend on."""
        return {module_id: buffer.get_state() for module_id, buffer in self.buffers.items()}

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self.buffers = {}
        for module_id, saved in state.items():
            self._buffer(module_id).set_state(saved)


class MultiAgentPrioritizedEpisodeReplayBuffer(MultiAgentEpisodeReplayBuffer):
    """One prioritized buffer per module."""

    buffer_class = PrioritizedEpisodeReplayBuffer

    def update_priorities(self, priorities: Any, module_id: str | None = None) -> None:
        """Set the priorities of the last sample of a module, or by module id."""
        given = priorities if module_id is None else {module_id: priorities}
        for key, values in given.items():
            self.buffers[key].update_priorities(values)


def columns_of_transitions(episodes: Sequence[SingleAgentEpisode]) -> dict[str, Tree]:
    """Return one-step episodes as columns [B, …]."""

    def stacked(values: Sequence[object]) -> Tree:
        return stack_trees(np.stack, list(values))

    extra = episodes[0].extra_model_outputs
    return {
        Columns.OBS: stacked([each.get_observations(0) for each in episodes]),
        Columns.ACTIONS: stacked([each.get_actions(0) for each in episodes]),
        Columns.REWARDS: np.array([each.get_rewards(0) for each in episodes], np.float32),
        Columns.NEXT_OBS: stacked([each.get_observations(1) for each in episodes]),
        Columns.TERMINATEDS: np.array([each.is_terminated for each in episodes]),
        Columns.TRUNCATEDS: np.array([each.is_truncated for each in episodes]),
        **{
            name: stacked([each.extra_model_outputs[name].get(0) for each in episodes])
            for name in extra
        },
    }
