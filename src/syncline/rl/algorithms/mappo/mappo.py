"""MAPPO: PPO for several agents with a central critic (Yu et al. 2022,
https://arxiv.org/abs/2103.01955).

Each agent acts on its own observation. The value function, used only in training, sees the whole
state: `state` in observations, or the latest observations of all agents. The loss is that of PPO.
Agents share a module unless `multi_agent()` names several. Not included: normalized value targets,
recurrent critics.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithms.mappo.central_state import with_central_state
from syncline.rl.algorithms.mappo.torch.central_critic_torch_module import (
    CentralCriticTorchRLModule,
)
from syncline.rl.algorithms.ppo.ppo import PPO, PPOConfig
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.section import NotProvided
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.runners.multi_agent_env_runner import MultiAgentEnvRunner

ConfigT = TypeVar("ConfigT", bound="MAPPOConfig")


class MAPPOConfig(PPOConfig):
    """Options of MAPPO."""

    add_central_state: bool = True

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or MAPPO)

    def training(self: ConfigT, *, add_central_state: bool = NotProvided, **kwargs: Any) -> ConfigT:
        """Set hyperparameters.

        Args:
            add_central_state: Add the latest observations of all agents to each observation,
                unless the environment already returns dicts with the keys `obs` and `state`.
            kwargs: Options of PPO and of all algorithms.
        """
        super().training(**kwargs)
        return self._set({"add_central_state": add_central_state})

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of a module with a central critic."""
        return RLModuleSpec(module_class=CentralCriticTorchRLModule)


class MAPPO(PPO):
    """Multi-agent PPO with a central critic."""

    @classmethod
    def get_default_config(cls) -> MAPPOConfig:
        """Return the default options."""
        return MAPPOConfig()

    def _build(self, config: AlgorithmConfig) -> None:
        if config.env is not None and config.add_central_state:
            config.env = with_central_state(config.env)
        super()._build(config)

    def env_runner_class(self, config: AlgorithmConfig) -> type:
        """Return the class of env runners."""
        return config.env_runner_cls or MultiAgentEnvRunner
