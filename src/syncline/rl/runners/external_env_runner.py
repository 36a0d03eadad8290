"""`ExternalEnvRunner`: samples from external simulators, which send steps or episodes.

Covered: acting for simulators, received steps and episodes, waiting for enough of them, weights.
weights. Not covered: sockets (`envs/external/message_server`), several agents.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np

from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree, stack_trees
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.envs.checks import mismatch
from syncline.rl.envs.external.message_server import Address, MessageServer
from syncline.rl.envs.external.policy_server_input import PolicyServerInput
from syncline.rl.envs.external.rllink import Message, RLlink
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.modules.rl_module import MultiRLModule, RLModule
from syncline.rl.runners.actions import actions_for_env
from syncline.rl.runners.exploration import exploring
from syncline.rl.runners.noise import generator, seed_or_random
from syncline.rl.runners.sample import EpisodeResult, Sample, SampleTimes
from syncline.rl.runners.trajectory import Trajectory, fragment_of
from syncline.rl.value_types import Space, SpacePair

logger = logging.getLogger("syncline")

DEFAULT_PORT = 5555
REPORT_S = 60.0
"""Seconds without a step after which waiting is logged."""


class ExternalEnvRunner:
    """Listens for simulators at the address in `env_config` ("host", "port" or "socket_path").

    The index of the runner is added to `port`; 0 is any free port. Spaces must be configured.

    Args:
        config: The algorithm's options.
        worker_index: 0 in the algorithm's process, else 1 to `num_env_runners`.
        num_workers: Number of runners.
        clock: Source of time in seconds.
    """

    def __init__(
        self,
        *,
        config: AlgorithmConfig,
        worker_index: int = 0,
        num_workers: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
        **_: Any,
    ) -> None:
        self.config = config
        self.worker_index = worker_index
        self._clock = clock
        _check(config)
        self._thread: Any = None if config.env is None else config.env(config.env_config)
        self.observation_space, self.action_space = self._spaces()
        spaces = (self.observation_space, self.action_space)
        self.module: RLModule = config.get_rl_module_spec(spaces, inference_only=True).build()
        self._acting = exploring(self.module, config)
        self._to_env = actions_for_env(
            self.action_space, normalize=config.normalize_actions, clip=config.clip_actions
        )
        self._random = generator(seed_or_random(config.seed), worker_index, "explore")
        self._initial: Tree = None
        if self.module.is_stateful():
            self._initial = map_tree(np.asarray, self.module.get_initial_state())
        self._state_every = int(self.module.model_config.get("max_seq_len", 20))
        self._changed = threading.Condition()
        self._trajectories: list[Trajectory] = []
        self._episodes: list[EpisodeResult] = []
        self._number = 0
        self.num_steps = 0
        """Number of finished steps that have not been returned."""
        self.weights_version = 0
        self._learned: MultiRLModule | None = None
        self._is_stopped = False
        self.server: MessageServer | None = None
        if self._thread is None:
            self.server = MessageServer(self._address(), lambda: SimulatorPeer(self))
        else:
            self._thread.connect(SimulatorPeer(self))
            self._thread.start()

    def _spaces(self) -> SpacePair:
        spaces = self.config.observation_space, self.config.action_space
        if self._thread is not None:
            env = self._thread
            spaces = spaces[0] or env.observation_space, spaces[1] or env.action_space
        if None in spaces:
            raise ValueError(
                "External simulators need the spaces in the configuration: "
                "`config.environment(observation_space=…, action_space=…)`."
            )
        return spaces

    def _address(self) -> Address:
        given = self.config.env_config
        if given.get("socket_path"):
            path = str(given["socket_path"])
            return f"{path}.{self.worker_index}" if self.worker_index else path
        port = int(given.get("port", DEFAULT_PORT))
        return str(given.get("host", "localhost")), port + self.worker_index if port else 0

    # -- for simulators, in their threads

    def new_trajectory(self, *, training: bool = True) -> Trajectory:
        """Begin an episode; its steps are sampled if `training`."""
        with self._changed:
            self._number += 1
            trajectory = Trajectory(self._number, 0, None)
            if training:
                self._trajectories.append(trajectory)
            return trajectory

    def observed(self, trajectory: Trajectory, obs: Tree) -> None:
        """Record an observation, which ends the previous step."""
        problem = mismatch(self.observation_space, obs)
        if problem:
            raise ValueError(f"{problem}.")
        with self._changed:
            before = len(trajectory.rows)
            trajectory.observed(map_tree(np.asarray, obs), self._initial, trajectory.number)
            self._note_steps(trajectory, len(trajectory.rows) - before)

    def act(self, trajectory: Trajectory, explore: bool) -> Tree:
        """Return an action for the newest observation, ready for the environment."""
        with self._changed:
            policy = self._acting
            shape = (1, policy.noise_size)
            noise = (
                self._random.random(shape)
                if policy.noise_kind == "uniform"
                else self._random.standard_normal(shape)
            )
            obs = stack_trees(np.stack, [trajectory.obs])
            state = None
            if self._initial is not None:
                state = stack_trees(np.stack, [trajectory.state])
            columns, following = policy.act(obs, noise, explore, state)
            row = _first(columns)
            trajectory.acted(row, None if state is None else _first(following))
            actions = columns[Columns.ACTIONS]
            return _first(actions if self._to_env is None else self._to_env(actions))

    def took(self, trajectory: Trajectory, columns: dict[str, Tree]) -> None:
        """Record an action that the simulator chose."""
        with self._changed:
            trajectory.acted(columns, trajectory.state)

    def ended(
        self, trajectory: Trajectory, obs: Tree, *, truncated: bool, result: EpisodeResult
    ) -> None:
        """Record the end of an episode."""
        with self._changed:
            before = len(trajectory.rows)
            final = map_tree(np.asarray, obs)
            trajectory.ended(not truncated, truncated, final, trajectory.number)
            if trajectory in self._trajectories:
                self._episodes.append(result)
            self._note_steps(trajectory, len(trajectory.rows) - before)

    def forget(self, trajectory: Trajectory) -> None:
        """Discard an episode."""
        with self._changed:
            if trajectory in self._trajectories:
                self._trajectories.remove(trajectory)
                self.num_steps -= len(trajectory.rows)

    def add_episode(self, episode: SingleAgentEpisode) -> None:
        """Add a part of an episode that a simulator sampled with its copy of the module.

        Raises:
            ValueError: The module has a memory, or values do not belong to the spaces.
        """
        if self._initial is not None:
            raise ValueError("modules with memory need inference in the algorithm (GET_ACTION)")
        trajectory = self.new_trajectory()
        for t in range(len(episode)):
            self.observed(trajectory, episode.get_observations(t))
            outputs = {
                name: episode.get_extra_model_outputs(name, t)
                for name in episode.extra_model_outputs
            }
            self.took(trajectory, {Columns.ACTIONS: episode.get_actions(t), **outputs})
            trajectory.reward += float(episode.get_rewards(t))
        last = episode.get_observations(-1)
        if not episode.is_done:
            self.observed(trajectory, last)
            return
        result = EpisodeResult(
            env=0,
            episode_return=float(episode.get_return()),
            length=len(episode),
            duration_s=episode.get_duration_s(),
        )
        self.ended(trajectory, last, truncated=not episode.is_terminated, result=result)

    def _note_steps(self, trajectory: Trajectory, count: int) -> None:
        if count and trajectory in self._trajectories:
            self.num_steps += count
            self._changed.notify_all()

    def wait_for_update(self) -> None:
        """Wait until the weights change or the runner stops."""
        with self._changed:
            version = self.weights_version
            self._changed.wait_for(lambda: self.weights_version != version or self._is_stopped)

    def get_module_state(self) -> StateDict:
        """Return weights and their version, for simulators with local inference."""
        with self._changed:
            return {
                "rl_module": self.module.get_state(inference_only=True),
                "weights_seq_no": self.weights_version,
            }

    # -- sampling

    def sample_steps(self, steps: int, **_: object) -> Sample:
        """Wait for `steps` steps times `num_envs_per_env_runner`."""
        needed = steps * self.config.num_envs_per_env_runner
        return self._sample(lambda: self.num_steps >= needed)

    def sample_complete(self, least_steps: int, **_: object) -> Sample:
        """Wait for `least_steps` steps of finished episodes."""
        return self._sample(lambda: sum(each.length for each in self._episodes) >= least_steps)

    def sample_episodes(self, count: int, **_: object) -> Sample:
        """Wait for `count` finished episodes."""
        return self._sample(lambda: len(self._episodes) >= count)

    def _sample(self, is_enough: Callable[[], bool]) -> Sample:
        began = self._clock()
        with self._changed:
            while not self._changed.wait_for(is_enough, REPORT_S):
                logger.warning(
                    "Waiting for external simulators at %s: %d steps so far.",
                    self.server.address if self.server else self._thread,
                    self.num_steps,
                )
            used = [each for each in self._trajectories if each.rows]
            fragment = fragment_of(used, self._state_every, self.weights_version)
            episodes, self._episodes = self._episodes, []
            for each in used:
                each.handed_over()
            self._trajectories = [each for each in self._trajectories if each.obs is not None]
            self.num_steps = 0
        return Sample(
            fragments={DEFAULT_MODULE_ID: fragment},
            episodes=episodes,
            env_steps=fragment.num_steps,
            module_steps={DEFAULT_MODULE_ID: fragment.num_steps},
            times=SampleTimes(total_s=self._clock() - began),
        )

    # -- weights and state

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return observation and action space by module id."""
        return {DEFAULT_MODULE_ID: (self.observation_space, self.action_space)}

    def share_modules(self, modules: MultiRLModule) -> None:
        """Use a copy of the learner's weights, because simulators act while it learns."""
        self._learned = modules

    def set_weights(self, weights: StateDict, version: int) -> None:
        """Set the weights of the module, by module id."""
        if self._learned is not None:
            learned = self._learned[DEFAULT_MODULE_ID]
            weights = {DEFAULT_MODULE_ID: learned.get_state(inference_only=True)}
        with self._changed:
            if DEFAULT_MODULE_ID in weights:
                self.module.set_state(weights[DEFAULT_MODULE_ID])
            self.weights_version = version
            self._changed.notify_all()

    def get_state(self) -> StateDict:
        """Return the random state; simulators keep their own state."""
        return {"random": self._random.bit_generator.state}

    def set_state(self, state: StateDict) -> bool:
        """Restore a state; return False because simulators keep their own state."""
        self._random.bit_generator.state = state["random"]
        return False

    def ping(self) -> str:
        """Return "pong"."""
        return "pong"

    def stop(self) -> None:
        """Close all connections."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self.server is not None:
            self.server.close()


class SimulatorPeer:
    """Handles the messages of one simulator.

    Args:
        runner: The runner.
    """

    def __init__(self, runner: ExternalEnvRunner) -> None:
        self._runner = runner
        self._episodes: dict[str, _Episode] = {}

    def answer(self, kind: RLlink, message: Message) -> Message | None:
        """Return the answer to a message.

        Raises:
            ValueError: The message is invalid, for example because of an unknown episode.
        """
        runner = self._runner
        if kind is RLlink.PING:
            return {"type": RLlink.PONG.name}
        if kind in (RLlink.EPISODES, RLlink.EPISODES_AND_GET_STATE):
            for state in message["episodes"]:
                runner.add_episode(SingleAgentEpisode.from_state(state))
            if kind is RLlink.EPISODES:
                return None
            runner.wait_for_update()
        if kind in (RLlink.GET_STATE, RLlink.EPISODES_AND_GET_STATE):
            return {"type": RLlink.SET_STATE.name, "state": runner.get_module_state()}
        if kind is RLlink.GET_CONFIG:
            sent = runner.config.copy(copy_frozen=False)
            sent.observation_space, sent.action_space = runner.get_spaces()[DEFAULT_MODULE_ID]
            sent.input_, sent.callbacks_class = "sampler", None
            return {"type": RLlink.SET_CONFIG.name, "config": cloudpickle.dumps(sent)}
        return {"type": kind.name, **self._of_episode(kind, message)}

    def _of_episode(self, kind: RLlink, message: Message) -> Message:
        episode_id = message["episode_id"]
        if kind is RLlink.START_EPISODE:
            self.start(episode_id, message.get("training_enabled", True))
        elif kind is RLlink.GET_ACTION:
            return {"action": self.act(episode_id, message["observation"])}
        elif kind is RLlink.LOG_ACTION:
            self.log_action(episode_id, message["observation"], message["action"])
        elif kind is RLlink.LOG_RETURNS:
            self.reward(episode_id, message["reward"])
        elif kind is RLlink.END_EPISODE:
            self.end(episode_id, message["observation"], bool(message.get("truncated")))
        else:
            raise ValueError("only an algorithm sends this")
        return {}

    def start(self, episode_id: str, training: bool) -> None:
        """Begin an episode."""
        if episode_id in self._episodes:
            raise ValueError(f"the episode {episode_id!r} has already begun")
        self._episodes[episode_id] = _Episode(self._runner, training)

    def act(self, episode_id: str, observation: Tree) -> Tree:
        """Return an action."""
        episode = self._episode(episode_id)
        self._runner.observed(episode.trajectory, observation)
        episode.length += 1
        return self._runner.act(episode.trajectory, bool(self._runner.config.explore))

    def log_action(self, episode_id: str, observation: Tree, action: Tree) -> None:
        """Record an action that the simulator chose."""
        episode = self._episode(episode_id)
        self._runner.observed(episode.trajectory, observation)
        episode.length += 1
        self._runner.took(episode.trajectory, {Columns.ACTIONS: map_tree(np.asarray, action)})

    def reward(self, episode_id: str, reward: float) -> None:
        """Add a reward."""
        episode = self._episode(episode_id)
        if not np.isfinite(reward):
            raise ValueError(f"the reward is {reward}")
        episode.trajectory.reward += float(reward)
        episode.total += float(reward)

    def end(self, episode_id: str, observation: Tree, truncated: bool) -> None:
        """End an episode."""
        episode = self._episode(episode_id)
        result = EpisodeResult(
            env=0,
            episode_return=episode.total,
            length=episode.length,
            duration_s=time.perf_counter() - episode.began,
        )
        del self._episodes[episode_id]
        self._runner.ended(episode.trajectory, observation, truncated=truncated, result=result)

    def _episode(self, episode_id: str) -> _Episode:
        if episode_id not in self._episodes:
            raise ValueError(
                f"unknown episode {episode_id!r}: call start_episode() first, and do not use an "
                "episode after end_episode()"
            )
        return self._episodes[episode_id]

    def closed(self) -> None:
        """Discard the unfinished episodes of a disconnected simulator."""
        for episode in self._episodes.values():
            self._runner.forget(episode.trajectory)
        self._episodes = {}


class _Episode:
    def __init__(self, runner: ExternalEnvRunner, training: bool) -> None:
        self.trajectory = runner.new_trajectory(training=training)
        self.total = 0.0
        self.length = 0
        self.began = time.perf_counter()


def use_policy_server(config: AlgorithmConfig) -> None:
    """Use external simulators if `input` is a function that returns a `PolicyServerInput`."""
    if not callable(config.input_) or isinstance(config.input_, type):
        return
    if not inspect.signature(config.input_).parameters:  # a function that returns a dataset
        return
    ioctx = SimpleNamespace(
        worker_index=0, config=config, input_config={}, default_sampler_input=lambda: None
    )
    made = config.input_(ioctx)
    if not isinstance(made, PolicyServerInput):
        return
    config.input_ = "sampler"
    config.env = None
    config.env_runner_cls = ExternalEnvRunner
    config.env_config = {**(config.env_config or {}), "host": made.address, "port": made.port}


def _check(config: AlgorithmConfig) -> None:
    if config._env_to_module_connector or config._module_to_env_connector:
        raise ValueError(
            "External simulators do not support connectors between environments and modules. "
            "Convert observations and actions in the simulator, and remove the options."
        )


def _first(tree: Tree) -> Tree:
    return map_tree(lambda leaf: leaf[0], tree)
