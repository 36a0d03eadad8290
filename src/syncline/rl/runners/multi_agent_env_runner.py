"""`MultiAgentEnvRunner`: samples environments with several agents and modules.

Covered: the loop over steps, agents that join, pause and leave, ends of episodes. Not covered:
steps of one agent (`trajectory`), episodes as objects (`multi_agent_tracker`), connectors
(`connections`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from syncline.rl.callbacks.callback_list import configured_callbacks
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree, stack_trees
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.module_change import ModuleChange
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.envs.multi_agent_guard import GuardedMultiAgentEnv
from syncline.rl.envs.multi_agent_vector import make_multi_agent_env
from syncline.rl.episodes.multi_agent_episode import MultiAgentEpisode
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.rl_module import MultiRLModule, RLModule
from syncline.rl.offline.recorder import EpisodeRecorder
from syncline.rl.runners.actions import actions_for_env, random_action
from syncline.rl.runners.connections import MultiAgentConnections
from syncline.rl.runners.episode_sampling import EpisodeSampling
from syncline.rl.runners.exploration import NoiseOnActions, exploring
from syncline.rl.runners.multi_agent_tracker import (
    EnvStep,
    EpisodeSoFar,
    MultiAgentEnvs,
    MultiAgentEpisodeTracker,
    reads_episodes,
)
from syncline.rl.runners.noise import generator, seed_or_random
from syncline.rl.runners.sample import EpisodeResult, Sample, SampleTimes
from syncline.rl.runners.single_agent_env_runner import set_step
from syncline.rl.runners.trajectory import Trajectory, fragment_of
from syncline.rl.value_types import AgentDict, AgentID, CustomData, Episode, Space, SpacePair
from syncline.suggestions import did_you_mean

ALL = "__all__"


class MultiAgentEnvRunner(EpisodeSampling):
    """Samples `num_envs_per_env_runner` environments whose agents are mapped to modules.

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
        **_: object,
    ) -> None:
        self.config = config
        self.worker_index = worker_index
        self.num_workers = config.num_env_runners if num_workers is None else num_workers
        self._clock = clock
        self.num_envs = config.num_envs_per_env_runner
        first = max(worker_index - 1, 0) * self.num_envs
        self._env_numbers = range(first, first + self.num_envs)
        seed = seed_or_random(config.seed)
        self._random = [generator(seed, env, "explore") for env in self._env_numbers]
        self._reset_seeds = [
            int(generator(seed, env, "reset").integers(2**31)) for env in self._env_numbers
        ]
        self.weights_version = 0
        self.progress = np.zeros(1, np.int64)
        """[1]: number of environment steps so far."""
        self.metrics = MetricsLogger()
        self.callbacks = configured_callbacks(config)
        self._tracker: MultiAgentEpisodeTracker | None = None
        self._recorders: dict[str, EpisodeRecorder] = {}
        self._unreported: list[Sample] = []
        self.envs: list[GuardedMultiAgentEnv] = []
        self.make_env()
        self.module: MultiRLModule = self.make_module()
        self.make_acting()

    # -- environments and modules

    def make_env(self) -> None:
        """Create the environments, and replace earlier ones."""
        for env in self.envs:
            env.close()
        self.envs = [
            make_multi_agent_env(
                self.config,
                worker_index=self.worker_index,
                vector_index=place,
                num_workers=self.num_workers,
                index=self._env_numbers.start + place,
            )
            for place in range(self.num_envs)
        ]
        self._agents = list(self.envs[0].possible_agents)
        self._state: list[_EnvState] = []
        self._trajectories: dict[tuple[int, AgentID, str], Trajectory] = {}
        self.env = MultiAgentEnvs(self.envs)
        self._connect()
        self.callbacks.call(
            "on_environment_created",
            env_runner=self,
            metrics_logger=self.metrics,
            env=self.env,
            env_context=self.config.env_config,
        )

    def _connect(self) -> None:
        """Create the connectors, and the episode tracker if it is needed."""
        env = self.envs[0]
        self._spaces = (
            gym.spaces.Dict({a: env.get_observation_space(a) for a in env.possible_agents}),
            gym.spaces.Dict({a: env.get_action_space(a) for a in env.possible_agents}),
        )
        configured = MultiAgentConnections.configured(
            self.config,
            env=self.env,
            observation_space=self._spaces[0],
            action_space=self._spaces[1],
            metrics=self.metrics,
        )
        self._pipelines = configured.pipelines
        self._connections = configured if configured.are_needed else None
        if (
            self._connections is not None
            or self.callbacks.needs_episodes
            or self.callbacks.has("on_sample_end")
            or self.config.output
            or reads_episodes(self.config.policy_mapping_fn)
        ):
            self._tracker = self._new_tracker()

    def _new_tracker(self) -> MultiAgentEpisodeTracker:
        return MultiAgentEpisodeTracker(
            self,
            self.callbacks,
            self.metrics,
            self._connections,
            spaces=self._spaces,
            map_to_module=self._module_id,
        )

    def _tracked(self) -> MultiAgentEpisodeTracker:
        if self._tracker is None:
            self._tracker = self._new_tracker()
            if self._state:
                self.reset()
        return self._tracker

    def get_spaces(self) -> dict[str, SpacePair]:
        """Return observation and action space by module id, from the agents mapped to it."""
        env = self.envs[0]
        found: dict[str, SpacePair] = {}
        episode: Episode = EpisodeSoFar(id_="spaces")
        if self._tracker is not None:
            episode = self._tracker.new("spaces")
        for agent in env.possible_agents:
            module_id = self._module_id(agent, episode)
            spaces = self._observation_space(agent), env.get_action_space(agent)
            before = found.setdefault(module_id, spaces)
            if before != spaces:
                raise ValueError(
                    f"Agents of the module {module_id!r} have different spaces: {agent!r} has "
                    f"{spaces}, another agent has {before}. Map them to different modules with "
                    "`multi_agent(policy_mapping_fn=…)`."
                )
        return found

    def _observation_space(self, agent: AgentID) -> Space:
        """Return the space of an agent's observations after the connectors."""
        if self._connections is None:
            return self.envs[0].get_observation_space(agent)
        space = self._connections.env_to_module.observation_space
        if not isinstance(space, gym.spaces.Dict) or agent not in space.spaces:
            raise ValueError(
                f"The connectors to the modules change the observation space to {space}, which has "
                f"no space for the agent {agent!r}. Return a Dict by agent id from "
                "`recompute_output_observation_space`; built-in connectors need "
                "`multi_agent=True`."
            )
        return space[agent]

    def _module_id(self, agent: AgentID, episode: Episode) -> str:
        module_id = self.config.policy_mapping_fn(agent, episode)
        if module_id not in self.config.policies:
            raise KeyError(
                f"`policy_mapping_fn` maps the agent {agent!r} to the unknown module "
                f"{module_id!r}.{did_you_mean(str(module_id), self.config.policies)} Modules: "
                f"{', '.join(sorted(self.config.policies))}."
            )
        return str(module_id)

    def make_module(self) -> MultiRLModule:
        """Create the modules for acting."""
        spec = self.config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        module: MultiRLModule = spec.build()
        return module

    def share_modules(self, modules: MultiRLModule) -> None:
        """Use the modules of the learner."""
        self.module = modules
        self.make_acting()

    def make_acting(self) -> None:
        """Create the acting policies of the current modules."""
        self._acting: dict[str, ActingPolicy] = {}
        self._initial: dict[str, Tree] = {}
        self._to_env: dict[str, Any] = {}
        for module_id, module in self.module.items():
            self._add_acting(module_id, module)

    def _add_acting(self, module_id: str, module: RLModule) -> None:
        self._acting[module_id] = exploring(module, self.config)
        self._initial[module_id] = None
        if module.is_stateful():
            self._initial[module_id] = map_tree(np.asarray, module.get_initial_state())
        self._to_env[module_id] = actions_for_env(
            module.action_space,
            normalize=self.config.normalize_actions,
            clip=self.config.clip_actions,
        )

    def change_modules(self, change: ModuleChange) -> None:
        """Add or remove a module. The new `policy_mapping_fn` applies to agents that appear later;
        environments in which an agent uses the removed module begin new episodes.
        """
        self.config = change.changed(self.config)
        module_id = change.module_id
        if change.spec is not None:
            if module_id not in self.module:  # the learner's modules already contain it
                spec = copy.copy(change.spec)
                spec.inference_only = True
                self.module.add_module(module_id, spec.build())
            self._add_acting(module_id, self.module[module_id])
            return
        self.module.remove_module(module_id, raise_err_if_not_found=False)
        for by_module in (self._acting, self._initial, self._to_env):
            by_module.pop(module_id, None)
        for state in self._state:
            if module_id in state.modules.values():
                self._abandon_episode(state)
        self._trajectories = {
            key: each for key, each in self._trajectories.items() if key[2] != module_id
        }

    def _abandon_episode(self, state: _EnvState) -> None:
        """Begin a new episode and discard the unreturned steps of the current one."""
        for key in [key for key in self._trajectories if key[0] == state.place]:
            del self._trajectories[key]
        state.episode += 1
        state.seed = None
        self._reset_env(state)

    # -- sampling

    def sample_steps(
        self,
        steps: int,
        *,
        explore: bool | None = None,
        random_actions: bool = False,
        step: int | None = None,
    ) -> Sample:
        """Take `steps` steps in every environment; see `SingleAgentEnvRunner.sample_steps`."""
        if step is not None:
            for acting in self._acting.values():
                set_step(acting, step)
        return self._sample(lambda taken, _: taken < steps, explore, random_actions)

    def sample_episodes(
        self, count: int, *, explore: bool | None = None, random_actions: bool = False
    ) -> Sample:
        """Sample `count` complete new episodes, the same number in every environment."""
        shares = np.full(self.num_envs, count // self.num_envs)
        shares[: count % self.num_envs] += 1
        return self._sample_complete(
            lambda _, ended: bool((ended < shares).any()), shares, explore, random_actions
        )

    def sample_complete(
        self, least_steps: int, *, explore: bool | None = None, random_actions: bool = False
    ) -> Sample:
        """Sample complete new episodes until they have `least_steps` steps."""
        unlimited = np.full(self.num_envs, np.iinfo(np.int64).max)
        return self._sample_complete(
            lambda *_: sum(each.length for each in self._episodes) < least_steps,
            unlimited,
            explore,
            random_actions,
        )

    def _sample_complete(
        self,
        goes_on: Callable[[int, np.ndarray], bool],
        shares: np.ndarray,
        explore: bool | None,
        random_actions: bool,
    ) -> Sample:
        self.reset()
        sample = self._sample(goes_on, explore, random_actions, shares)
        self.reset()
        return sample

    def reset(self) -> None:
        """Begin a new episode in every environment."""
        seeds: list[int | None] = list(self._reset_seeds) if not self._state else []
        self._trajectories = {}
        self._state = [
            _EnvState(place, seeds[place] if seeds else None) for place in range(self.num_envs)
        ]
        for state in self._state:
            self._reset_env(state)

    def _reset_env(self, state: _EnvState) -> None:
        if self._tracker is not None:
            self._tracker.create(state.place, self._episode_id(state))
        obs, infos = self.envs[state.place].reset(seed=state.seed)
        state.begin(self._clock())
        if self._tracker is not None:
            obs = self._tracker.begin(state.place, obs, infos)
        self._observe(state, obs)

    def _sample(
        self,
        goes_on: Callable[[int, np.ndarray], bool],
        explore: bool | None,
        random_actions: bool,
        shares: np.ndarray | None = None,
    ) -> Sample:
        explore = self.config.explore if explore is None else explore
        self._episodes: list[EpisodeResult] = []
        self._shares = shares
        if not self._state:
            self.reset()
        if self._tracker is not None:
            self._tracker.explore = explore
        times, clock, began = SampleTimes(), self._clock, self._clock()
        first_episodes = [state.episode for state in self._state]
        taken = 0
        ended = np.zeros(self.num_envs, np.int64)
        while goes_on(taken, ended):
            start = clock()
            actions = self._act(explore, random_actions)
            acted = clock()
            self._step(actions)
            times.inference_s += acted - start
            times.env_s += clock() - acted
            self.progress[0] += 1
            taken += 1
            ended = np.array(
                [
                    state.episode - first
                    for state, first in zip(self._state, first_episodes, strict=True)
                ]
            )
        times.total_s = clock() - began
        return self._hand_over(taken, times, shares, first_episodes)

    def _act(self, explore: bool, random_actions: bool) -> list[AgentDict[Tree]]:
        """Return the actions of all agents with an observation, by environment."""
        waiting: dict[str, list[Trajectory]] = {}
        noise: dict[str, list[np.ndarray]] = {}
        for state in self._state:
            random = self._random[state.place]
            for module_id, trajectory in state.acting:
                policy = self._acting[module_id]
                waiting.setdefault(module_id, []).append(trajectory)
                drawn = (
                    random.random(policy.noise_size)
                    if policy.noise_kind == "uniform"
                    else random.standard_normal(policy.noise_size)
                )
                noise.setdefault(module_id, []).append(drawn)
        chosen = {
            module_id: self._act_with(
                module_id, trajectories, np.stack(noise[module_id]), explore, random_actions
            )
            for module_id, trajectories in waiting.items()
        }
        actions: list[AgentDict[Tree]] = [{} for _ in self._state]
        for_env: dict[str, list[Trajectory]] = waiting
        if self._connections is not None and self._tracker is not None:
            self._connect_actions(self._connections, self._tracker, explore)
            for_env = {}
            for module_id, trajectories in waiting.items():
                plain = [each for each in trajectories if not _took_for_env(each, actions)]
                if plain:
                    for_env[module_id] = plain
                    chosen[module_id] = stack_trees(
                        np.stack, [(each.columns or {})[Columns.ACTIONS] for each in plain]
                    )
        for module_id, trajectories in for_env.items():
            to_env = self._to_env[module_id]
            converted = chosen[module_id] if to_env is None else to_env(chosen[module_id])
            for n, each in enumerate(trajectories):
                actions[each.env][each.agent] = _row(converted, n)
        return actions

    def _act_with(
        self,
        module_id: str,
        trajectories: list[Trajectory],
        noise: np.ndarray,
        explore: bool,
        random_actions: bool,
    ) -> Tree:
        """Begin a step of the trajectories of one module; return their stacked actions."""
        obs = stack_trees(np.stack, [each.obs for each in trajectories])
        states = None
        if self._initial[module_id] is not None:
            states = stack_trees(np.stack, [each.state for each in trajectories])
        columns, next_states = self._acting[module_id].act(obs, noise, explore, states)
        if random_actions:
            space = self.module[module_id].action_space
            columns[Columns.ACTIONS] = stack_trees(
                np.stack,
                [
                    random_action(space, self._random[each.env], self.config.normalize_actions)
                    for each in trajectories
                ],
            )
        for n, trajectory in enumerate(trajectories):
            trajectory.acted(_row(columns, n), None if states is None else _row(next_states, n))
        return columns[Columns.ACTIONS]

    def _connect_actions(
        self, connections: MultiAgentConnections, tracker: MultiAgentEpisodeTracker, explore: bool
    ) -> None:
        """Apply the connectors to the environments to the modules' outputs."""
        columns = {
            state.place: {each.agent: each.columns or {} for _, each in state.acting}
            for state in self._state
        }
        changed = connections.act_agents(self.module, tracker.episodes, columns, explore=explore)
        for state in self._state:
            for _, each in state.acting:
                each.columns = changed[state.place][each.agent]

    def _step(self, actions: list[AgentDict[Tree]]) -> None:
        """Take a step in every environment."""
        results = [self.envs[state.place].step(actions[state.place]) for state in self._state]
        observed = [result[0] for result in results]
        if self._tracker is not None:
            made = self._tracker.step(
                {
                    state.place: _step_of(state, result)
                    for state, result in zip(self._state, results, strict=True)
                }
            )
            observed = [made[state.place] for state in self._state]
        for state, obs, result in zip(self._state, observed, results, strict=True):
            self._record(state, actions[state.place], obs, result)

    def _record(
        self, state: _EnvState, actions: AgentDict[Tree], obs: AgentDict[Tree], result: Any
    ) -> None:
        """Add the results of a step to the trajectories."""
        _, rewards, terminateds, truncateds, _ = result
        state.length += 1
        for agent in actions:
            state.agent_steps[agent] = state.agent_steps.get(agent, 0) + 1
        for agent, reward in rewards.items():
            state.returns[agent] = state.returns.get(agent, 0.0) + float(reward)
            if agent in state.trajectories:
                state.trajectories[agent][1].reward += float(reward)
            else:
                state.early_rewards[agent] = state.early_rewards.get(agent, 0.0) + float(reward)
        over = bool(terminateds.get(ALL, False) or truncateds.get(ALL, False))
        all_terminated = bool(terminateds.get(ALL, False))
        for agent, (_, trajectory) in list(state.trajectories.items()):
            terminated = bool(terminateds.get(agent, over and all_terminated))
            truncated = bool(truncateds.get(agent, over and not all_terminated)) and not terminated
            if terminated or truncated or over:
                final = obs.get(agent)
                if final is None:
                    final = self._missing_final(state, agent, trajectory, terminated)
                truncated = truncated or not terminated
                trajectory.ended(terminated, truncated, _as_array(final), state.episode)
                del state.trajectories[agent]
        for flags in (terminateds, truncateds):
            for agent, ended in flags.items():
                if ended and agent != ALL:
                    state.finished.add(agent)
        if over:
            self._end_episode(state)
        else:
            self._observe(state, {a: each for a, each in obs.items() if a not in state.finished})

    def _missing_final(
        self, state: _EnvState, agent: AgentID, trajectory: Trajectory, terminated: bool
    ) -> Tree:
        """Return a substitute for a missing last observation. It has no effect after a terminal
        state; otherwise its value is needed, so an error is raised.
        """
        if terminated or trajectory.columns is None:
            return trajectory.obs
        raise ValueError(
            f"The episode of the agent {agent!r} was truncated at step {state.length} of "
            f"environment {self._env_numbers[state.place]} without a last observation, whose value "
            "is needed: return one in the dictionary of observations of that step, or set "
            f"`terminateds[{agent!r}]`."
        )

    def _observe(self, state: _EnvState, obs: AgentDict[Tree]) -> None:
        """Pass new observations to their agents, which act next."""
        state.acting = []
        for agent, each in obs.items():
            if agent not in state.trajectories:
                state.trajectories[agent] = self._trajectory(state, agent)
            module_id, trajectory = state.trajectories[agent]
            trajectory.observed(_as_array(each), self._initial[module_id], state.episode)
            trajectory.reward += state.early_rewards.pop(agent, 0.0)
            state.acting.append((module_id, trajectory))
        if not state.acting and not state.trajectories:
            raise ValueError(
                f"No agent of environment {self._env_numbers[state.place]} has an observation at "
                f"step {state.length}, but the episode has not ended: no agent could act. Return "
                f"observations, or set `terminateds[{ALL!r}]`."
            )

    def _trajectory(self, state: _EnvState, agent: AgentID) -> tuple[str, Trajectory]:
        module_id = state.modules.get(agent)
        if module_id is None:
            module_id = state.modules[agent] = self._mapped(state, agent)
        key = (state.place, agent, module_id)
        if key not in self._trajectories:
            if agent not in self._agents:
                self._agents.append(agent)
            number = self._env_numbers[state.place] * 1000 + self._agents.index(agent)
            self._trajectories[key] = Trajectory(number, state.place, agent)
        return module_id, self._trajectories[key]

    def _mapped(self, state: _EnvState, agent: AgentID) -> str:
        if self._tracker is not None:
            return self._tracker.episodes[state.place].module_for(agent)
        episode = EpisodeSoFar(
            id_=self._episode_id(state),
            env_t=state.length,
            modules=state.modules,
            custom_data=state.custom_data,
            module_for=lambda other: self._mapped_before(state, other),
        )
        return self._module_id(agent, episode)

    def _mapped_before(self, state: _EnvState, agent: AgentID) -> str:
        if agent not in state.modules:
            state.modules[agent] = self._mapped(state, agent)
        return state.modules[agent]

    def _episode_id(self, state: _EnvState) -> str:
        return f"{self._env_numbers[state.place]}-{state.episode}"

    def _end_episode(self, state: _EnvState) -> None:
        if self._shares is None or state.counted < self._shares[state.place]:
            if self.config.output and self._tracker is not None:
                self._write_episode(self._tracker.episodes[state.place])
            by_module: dict[str, list[float]] = {}
            for agent, value in state.returns.items():
                if agent in state.modules:
                    by_module.setdefault(state.modules[agent], []).append(value)
            self._episodes.append(
                EpisodeResult(
                    env=self._env_numbers[state.place],
                    episode_return=sum(state.returns.values()),
                    length=state.length,
                    duration_s=self._clock() - state.began,
                    agent_returns=dict(state.returns),
                    module_returns={
                        module_id: float(np.mean(values)) for module_id, values in by_module.items()
                    },
                    agent_steps=dict(state.agent_steps),
                )
            )
        state.counted += 1
        state.episode += 1
        state.seed = None
        self._reset_env(state)

    def _write_episode(self, episode: MultiAgentEpisode) -> None:
        """Record the episodes of the agents, in a folder for each module."""
        for single in episode.agent_episodes.values():
            module_id = str(single.module_id)
            if module_id not in self._recorders:
                self._recorders[module_id] = EpisodeRecorder(
                    self.config, self.worker_index, module_id
                )
            if len(single):
                self._recorders[module_id].add(single)

    def _hand_over(
        self, taken: int, times: SampleTimes, shares: np.ndarray | None, first_episodes: list[int]
    ) -> Sample:
        if shares is not None:
            for trajectory in self._trajectories.values():
                state = self._state[trajectory.env]
                last = min(
                    first_episodes[trajectory.env] + int(min(shares[trajectory.env], 2**60)),
                    state.episode,
                )
                trajectory.rows = [row for row in trajectory.rows if row.episode < last]
                trajectory.obs = None
        fragments = {}
        agent_steps: AgentDict[int] = {}
        for module_id, trajectories in self._by_module():
            fragments[module_id] = fragment_of(
                trajectories,
                int(self.module[module_id].model_config.get("max_seq_len", 20)),
                self.weights_version,
            )
            for each in trajectories:
                agent_steps[each.agent] = agent_steps.get(each.agent, 0) + len(each.rows)
        for each in self._trajectories.values():
            each.handed_over()
        if shares is None:
            env_steps = taken * self.num_envs
        else:
            env_steps = sum(each.length for each in self._episodes)
        return Sample(
            fragments=fragments,
            episodes=self._episodes,
            env_steps=env_steps,
            agent_steps=agent_steps,
            module_steps={name: each.num_steps for name, each in fragments.items()},
            times=times,
            metrics=None if self._tracker is None else self._tracker.hand_over(),
            connectors=(
                self._connections.take_changes()
                if self._connections is not None and self.worker_index
                else None
            ),
        )

    def _by_module(self) -> Iterator[tuple[str, list[Trajectory]]]:
        """Yield the trajectories with finished steps, by module."""
        for module_id in self.module:
            found = [
                each
                for (_, _, name), each in self._trajectories.items()
                if name == module_id and each.rows
            ]
            if found:
                yield module_id, sorted(found, key=lambda each: each.number)

    # -- connectors

    def get_pipelines(self) -> dict[str, ConnectorPipelineV2]:
        """Return the connectors before and after the modules, by name."""
        return self._pipelines

    def set_merged_connectors(self, state: StateDict) -> None:
        """Set the merged state of the connectors."""
        if self._connections is not None:
            self._connections.set_merged_state(state)

    # -- state

    def set_weights(self, weights: StateDict, version: int) -> None:
        """Set the weights of the modules, by module id."""
        for module_id, state in weights.items():
            if module_id in self.module:
                self.module[module_id].set_state(state)
        self.weights_version = version

    def get_state(self) -> StateDict:
        """Return everything that the next sample depends on, except the weights."""
        state: StateDict = {
            "random": [each.bit_generator.state for each in self._random],
            "exploration": {
                module_id: acting.get_state()
                for module_id, acting in self._acting.items()
                if isinstance(acting, NoiseOnActions)
            },
            "envs": None,
        }
        if self._connections is not None:
            state["connectors"] = copy.deepcopy(self._connections.get_state())
        if not self._state:
            return state
        if self._tracker is not None:
            state["tracked"] = self._tracker.get_state()
        return {
            **state,
            "envs": [(each.get_env_state(), each.last_obs) for each in self.envs],
            # Copied together: both refer to the same trajectories.
            "episodes": copy.deepcopy((self._state, self._trajectories, self._agents)),
        }

    def set_state(self, state: StateDict) -> bool:
        """Restore a state; return False if environments had to begin new episodes."""
        for made, saved in zip(self._random, state["random"], strict=True):
            made.bit_generator.state = saved
        for module_id, noise in state.get("exploration", {}).items():
            acting = self._acting.get(module_id)
            if isinstance(acting, NoiseOnActions):
                acting.set_state(noise)
        if state["envs"] is not None:
            self.reset()
        if self._connections is not None and "connectors" in state:
            self._connections.set_state(state["connectors"])
        if state["envs"] is None:
            return True
        if any(saved is None for saved, _ in state["envs"]):
            return False
        for env, (saved, last_obs) in zip(self.envs, state["envs"], strict=True):
            env.set_env_state(saved, last_obs)
        self._state, self._trajectories, self._agents = copy.deepcopy(state["episodes"])
        if self._tracker is not None and "tracked" in state:
            self._tracker.set_state(state["tracked"])
        return True

    def ping(self) -> str:
        """Return "pong"."""
        return "pong"

    def stop(self) -> None:
        """Close the environments, and write the remaining episodes."""
        for recorder in self._recorders.values():
            recorder.write()
        for env in self.envs:
            env.close()


class _EnvState:
    """State of the current episode of an environment."""

    def __init__(self, place: int, seed: int | None) -> None:
        self.place = place
        self.seed = seed
        self.episode = 0
        self.counted = 0
        self.acting: list[tuple[str, Trajectory]] = []
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Begin an episode."""
        self.began = now
        self.length = 0
        self.modules: AgentDict[str] = {}
        self.trajectories: AgentDict[tuple[str, Trajectory]] = {}
        self.returns: AgentDict[float] = {}
        self.agent_steps: AgentDict[int] = {}
        self.early_rewards: AgentDict[float] = {}
        self.finished: set[AgentID] = set()
        self.custom_data: CustomData = {}


def _took_for_env(trajectory: Trajectory, actions: list[AgentDict[Tree]]) -> bool:
    """Pop the converted action for the environment; return False if it is missing."""
    columns = trajectory.columns or {}
    if Columns.ACTIONS_FOR_ENV not in columns:
        return False
    actions[trajectory.env][trajectory.agent] = columns.pop(Columns.ACTIONS_FOR_ENV)
    return True


def _step_of(state: _EnvState, result: Any) -> EnvStep:
    """Return a step for the episode without agents that ended earlier."""
    obs, rewards, terminateds, truncateds, infos = (
        {agent: each for agent, each in by_agent.items() if agent not in state.finished}
        for by_agent in result
    )
    return EnvStep(
        columns={each.agent: each.columns or {} for _, each in state.acting},
        obs=obs,
        rewards=rewards,
        terminateds=terminateds,
        truncateds=truncateds,
        infos=infos,
    )


def _row(tree: Tree, n: int) -> Tree:
    return map_tree(lambda leaf: leaf[n], tree)


def _as_array(obs: Tree) -> Tree:
    return map_tree(np.asarray, obs)
