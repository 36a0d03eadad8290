"""`PolicyClient`: connects a simulator to an algorithm, for actions and for training."""

from __future__ import annotations

import pickle
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from syncline.rl.algorithm.acting import Acting
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree
from syncline.rl.envs.external.message_server import Address
from syncline.rl.envs.external.rllink import (
    Message,
    RLlink,
    get_rllink_message,
    send_rllink_message,
)
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.value_types import Batch, Info, Tree

STEPS_PER_MESSAGE = 200


class PolicyClient:
    """Returns actions for the episodes of a simulator. Not thread-safe.

    Args:
        address: "host:port", with or without "http://", or the path of a Unix socket.
        inference_mode: "remote": the algorithm computes the actions. "local": this process does,
            with weights that it fetches; it unpickles the algorithm's configuration and so must
        trust it.
        update_interval: Seconds between requests for weights with local inference.
        connect_timeout_s: Seconds to wait for the algorithm.
        clock: Source of time in seconds.

    Raises:
        ConnectionError: No algorithm listens at the address.
    """

    def __init__(
        self,
        address: str,
        inference_mode: Literal["local", "remote"] = "local",
        update_interval: float = 10.0,
        *,
        connect_timeout_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if inference_mode not in ("local", "remote"):
            raise ValueError(
                f"`inference_mode={inference_mode!r}` is unknown: use 'local' or 'remote'."
            )
        self._clock = clock
        self._socket = _connected(parse_address(address), connect_timeout_s)
        self._local: _LocalInference | None = None
        self._ask(RLlink.PING)
        if inference_mode == "local":
            config = pickle.loads(self._ask(RLlink.GET_CONFIG)["config"])
            self._local = _LocalInference(config, self._ask, update_interval, clock)

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begin an episode; return its id. `training_enabled=False` excludes it from training."""
        episode_id = episode_id or uuid.uuid4().hex
        if self._local is not None:
            self._local.start(episode_id, training_enabled)
        else:
            self._tell(
                RLlink.START_EPISODE, episode_id=episode_id, training_enabled=training_enabled
            )
        return episode_id

    def get_action(self, episode_id: str, observation: Tree) -> Tree:
        """Return the action for an observation, ready for the environment."""
        if self._local is not None:
            return self._local.act(episode_id, observation)
        answer = self._ask(
            RLlink.GET_ACTION, episode_id=episode_id, observation=_plain(observation)
        )
        return answer["action"]

    def log_action(self, episode_id: str, observation: Tree, action: Tree) -> None:
        """Report an action that the simulator chose for an observation.

        Only off-policy algorithms can learn from it, because its probability is unknown.
        """
        if self._local is not None:
            self._local.log_action(episode_id, observation, action)
            return
        self._tell(
            RLlink.LOG_ACTION,
            episode_id=episode_id,
            observation=_plain(observation),
            action=_plain(action),
        )

    def log_returns(
        self, episode_id: str, reward: float, info: Info | None = None, **_: object
    ) -> None:
        """Add a reward to the last action."""
        if self._local is not None:
            self._local.reward(episode_id, float(reward))
        else:
            self._tell(RLlink.LOG_RETURNS, episode_id=episode_id, reward=float(reward))

    def end_episode(self, episode_id: str, observation: Tree, *, truncated: bool = False) -> None:
        """End an episode with its last observation."""
        if self._local is not None:
            self._local.end(episode_id, observation, truncated)
            return
        self._tell(
            RLlink.END_EPISODE,
            episode_id=episode_id,
            observation=_plain(observation),
            truncated=truncated,
        )

    def update_policy_weights(self) -> None:
        """Fetch the newest weights now (local inference)."""
        if self._local is not None:
            self._local.update()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _ask(self, kind: RLlink, **message: object) -> Message:
        send_rllink_message(self._socket, {"type": kind.name, **message})
        if kind is RLlink.EPISODES:
            return {}
        answer, body = get_rllink_message(self._socket)
        if answer is RLlink.ERROR:
            raise ValueError(body["error"])
        return body

    _tell = _ask


class _LocalInference:
    """Acts with a copy of the module, and sends episodes in parts."""

    def __init__(
        self,
        config: Any,
        ask: Callable[..., Message],
        update_interval: float,
        clock: Callable[[], float],
    ) -> None:
        spaces = config.observation_space, config.action_space
        self._module = config.get_rl_module_spec(spaces, inference_only=True).build()
        if self._module.is_stateful():
            raise ValueError(
                "Modules with memory need `inference_mode='remote'`, because the algorithm must "
                "know their states."
            )
        self._acting = Acting(
            self._module,
            {},
            normalize_actions=config.normalize_actions,
            clip_actions=config.clip_actions,
            seed=uuid.uuid4().int % 2**32,
        )
        self._explore = bool(config.explore)
        self._ask = ask
        self._interval = update_interval
        self._clock = clock
        self._episodes: dict[str, _Running] = {}
        self._ready: list[Message] = []
        self._steps = 0
        self.update()

    def update(self) -> None:
        """Fetch the newest weights."""
        self._module.set_state(self._ask(RLlink.GET_STATE)["state"]["rl_module"])
        self._updated = self._clock()

    def start(self, episode_id: str, training: bool) -> None:
        """Begin an episode."""
        self._episodes[episode_id] = _Running(episode_id, training)

    def act(self, episode_id: str, observation: Tree) -> Tree:
        """Return an action."""
        if self._clock() - self._updated > self._interval:
            self.update()
        running = self._episodes[episode_id]
        running.observed(observation)
        actions, _, columns = self._acting.act([observation], explore=self._explore)
        row = {name: map_tree(lambda leaf: leaf[0], each) for name, each in columns.items()}
        running.acted(row.pop(Columns.ACTIONS), row)
        return actions[0]

    def log_action(self, episode_id: str, observation: Tree, action: Tree) -> None:
        """Record an action of the simulator."""
        running = self._episodes[episode_id]
        running.observed(observation)
        running.acted(action, {})

    def reward(self, episode_id: str, reward: float) -> None:
        """Add a reward."""
        self._episodes[episode_id].reward += reward

    def end(self, episode_id: str, observation: Tree, truncated: bool) -> None:
        """End an episode; send the collected episodes if they have enough steps."""
        running = self._episodes.pop(episode_id)
        running.observed(observation, terminated=not truncated, truncated=truncated)
        if running.training and len(running.episode):
            self._ready.append(running.episode.to_numpy().get_state())
            self._steps += len(running.episode)
        if self._steps >= STEPS_PER_MESSAGE:
            self._ask(RLlink.EPISODES, episodes=self._ready)
            self._ready, self._steps = [], 0


class _Running:
    """An episode of a local policy."""

    def __init__(self, episode_id: str, training: bool) -> None:
        self.episode = SingleAgentEpisode(id_=episode_id)
        self.training = training
        self.reward = 0.0
        self._action: Tree = None
        self._outputs: Batch = {}

    def observed(
        self, observation: Tree, *, terminated: bool = False, truncated: bool = False
    ) -> None:
        """Add an observation and the step that led to it."""
        if not self.episode.is_reset:
            self.episode.add_env_reset(observation)
            return
        self.episode.add_env_step(
            observation,
            self._action,
            self.reward,
            terminated=terminated,
            truncated=truncated,
            extra_model_outputs=self._outputs,
        )
        self.reward = 0.0

    def acted(self, action: Tree, outputs: Batch) -> None:
        """Record the action of the next step."""
        self._action, self._outputs = action, outputs


def parse_address(address: str) -> Address:
    """Return host and port of "http://host:port", or the path of a Unix socket.

    Raises:
        ValueError: The address has neither form.
    """
    plain = address.removeprefix("http://").removeprefix("tcp://").removeprefix("unix:")
    if "/" in plain.rstrip("/"):
        return plain
    host, _, port = plain.rstrip("/").rpartition(":")
    if not port.isdigit():
        raise ValueError(
            f"The address {address!r} is neither 'host:port' nor the path of a Unix socket."
        )
    return host or "localhost", int(port)


def _connected(address: Address, timeout_s: float) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    until = time.monotonic() + timeout_s
    while True:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.connect(address)
        except OSError as error:
            made.close()
            if time.monotonic() > until:
                raise ConnectionError(
                    f"No algorithm listens at {address}: {error}. Start the training first, and "
                    "check the port in its `env_config`."
                ) from error
            threading.Event().wait(0.1)
        else:
            return made


def _plain(value: object) -> Any:
    return map_tree(np.asarray, value)
