"""Options of environments and of several agents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

from syncline.rl.config.section import NotProvided, Section
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.value_types import CheckedSpace, Env, Space

ConfigT = TypeVar("ConfigT", bound="EnvironmentOptions")


def default_mapping(agent_id: Any, episode: Any = None, **_: Any) -> str:
    """Return the default module id for every agent."""
    return DEFAULT_MODULE_ID


class EnvironmentOptions(Section):
    """Options of `environment()` and `multi_agent()`."""

    env: Any = None
    env_config: Any = {}
    observation_space: CheckedSpace = None
    action_space: CheckedSpace = None
    render_env: bool = False
    clip_rewards: bool | float | None = None
    normalize_actions: bool = True
    clip_actions: bool = False
    disable_env_checking: bool = False
    action_mask_key: str = "action_mask"
    _is_atari: bool | None = None

    policies: Any = {DEFAULT_MODULE_ID: None}
    policy_mapping_fn: Callable[..., str] = staticmethod(default_mapping)
    policies_to_train: Any = None
    count_steps_by: str = "env_steps"
    observation_fn: Any = None
    policy_map_capacity: int = 100
    policy_states_are_swappable: bool = False

    def environment(
        self: ConfigT,
        env: Env = NotProvided,
        *,
        env_config: Mapping[str, object] = NotProvided,
        observation_space: Space = NotProvided,
        action_space: Space = NotProvided,
        render_env: bool = NotProvided,
        clip_rewards: bool | float | None = NotProvided,
        normalize_actions: bool = NotProvided,
        clip_actions: bool = NotProvided,
        disable_env_checking: bool = NotProvided,
        is_atari: bool | None = NotProvided,
        action_mask_key: str = NotProvided,
    ) -> ConfigT:
        """Set the environment.

        Args:
            env: A gymnasium id, a name of `tune.register_env`, a class, a function that takes an
                `EnvContext`, or a dotted path.
            env_config: Arguments of the environment; repeated calls merge the keys.
            observation_space: Observation space, if the environment does not define it.
            action_space: Action space, likewise.
            render_env: Write a video of an episode to `videos/` of the run after each evaluation.
            clip_rewards: True to take the sign of rewards; a number x to clip them to [-x, x].
            normalize_actions: Modules act in [-1, 1], and Box actions are scaled to their bounds.
            clip_actions: Clip Box actions to their bounds.
            disable_env_checking: Skip the checks of the environment at build time.
            is_atari: True for an Atari game; by default derived from the id.
            action_mask_key: Key of the action mask in observations.
        """
        given = dict(locals())
        if env_config is not NotProvided:
            given["env_config"] = {**(self.env_config or {}), **env_config}
        return self._set(given, is_atari="_is_atari")

    def multi_agent(
        self: ConfigT,
        *,
        policies: Collection[str] | Mapping[str, object] = NotProvided,
        policy_mapping_fn: Callable[..., str] = NotProvided,
        policies_to_train: Collection[str] | Callable[..., bool] | None = NotProvided,
        count_steps_by: Literal["env_steps", "agent_steps"] = NotProvided,
        observation_fn: object = NotProvided,
        policy_map_capacity: int = NotProvided,
        policy_states_are_swappable: bool = NotProvided,
        algorithm_config_overrides_per_module: Mapping[str, object] = NotProvided,
        **ignored: object,
    ) -> ConfigT:
        """Set the modules and the mapping from agents to modules.

        Args:
            policies: Ids of the modules, or a dictionary from ids to specifications.
            policy_mapping_fn: Function of (agent_id, episode, **kwargs) that returns a module id.
            policies_to_train: Ids of the modules to train, or a function of (module_id, batch);
                None for all.
            count_steps_by: Unit of batch sizes: environment steps or agent steps.
            observation_fn: Has no effect.
            policy_map_capacity: Has no effect: all modules stay in memory.
            policy_states_are_swappable: Has no effect.
            algorithm_config_overrides_per_module: Options of single modules, by id.
            ignored: Other options from older releases.
        """
        given = dict(locals())
        self._older("multi_agent", given.pop("ignored"))
        if policies is not NotProvided and not isinstance(policies, Mapping):
            given["policies"] = dict.fromkeys(sorted(policies))
        return self._set(given)

    @property
    def is_multi_agent(self) -> bool:
        """True if modules or a mapping function were given."""
        return (
            len(self.policies) > 1
            or DEFAULT_MODULE_ID not in self.policies
            or self.policy_mapping_fn is not default_mapping
        )

    @property
    def is_atari(self) -> bool:
        """True for an Atari game."""
        if self._is_atari is not None:
            return self._is_atari
        return isinstance(self.env, str) and self.env.startswith(("ale_py:", "ALE/"))
