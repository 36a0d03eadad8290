"""RLlib's module paths, and where their names are defined here.

`syncline.rllib.X` and `syncline.rl.X` have the names of `ray.rllib.X`. A path in the table is a
module without a file, whose names load on first use; any other path below `syncline.rllib` is the
module of the same path below `syncline.rl`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from syncline.suggestions import did_you_mean

HOME = "syncline.rl"
PREFIXES = ("syncline.rl", "syncline.rllib")

PATHS: dict[str, dict[str, str]] = {
    "": {"algorithms.ppo": "PPO"},
    "algorithms": {
        "algorithm.algorithm": "Algorithm",
        "config.algorithm_config": "AlgorithmConfig",
        "algorithms.ppo": "PPO PPOConfig",
        "algorithms.ars": "ARS ARSConfig",
        "algorithms.bc": "BC BCConfig",
        "algorithms.es": "ES ESConfig",
        "algorithms.dqn": "DQN DQNConfig",
        "algorithms.sac": "SAC SACConfig",
        "algorithms.td3": "TD3 TD3Config DDPG DDPGConfig",
    },
    "algorithms.ddpg": {"algorithms.td3": "DDPG DDPGConfig"},
    "algorithms.ddpg.ddpg": {"algorithms.td3": "DDPG DDPGConfig"},
    "algorithms.dqn.dqn_learner": {"algorithms.dqn.torch.dqn_torch_learner": "*"},
    "algorithms.dqn.torch.default_dqn_torch_rl_module": {
        "algorithms.dqn.torch.dqn_torch_module": "DefaultDQNTorchRLModule"
    },
    "algorithms.sac.torch.default_sac_torch_rl_module": {
        "algorithms.sac.torch.sac_torch_module": "DefaultSACTorchRLModule"
    },
    "algorithms.a2c.a2c": {"algorithms.a2c": "A2C A2CConfig"},
    "algorithms.algorithm": {"algorithm.algorithm": "Algorithm"},
    "algorithms.algorithm_config": {
        "config.algorithm_config": "AlgorithmConfig",
        "config.section": "NotProvided",
    },
    "algorithms.ppo.ppo_learner": {
        "algorithms.ppo.torch.ppo_torch_learner": "PPOTorchLearner:PPOLearner"
    },
    "algorithms.ppo.ppo_catalog": {"modules.torch.catalog": "PPOCatalog"},
    "algorithms.ppo.torch.default_ppo_torch_rl_module": {
        "modules.torch.actor_critic": "DefaultPPOTorchRLModule"
    },
    "connectors.connector_v2": {"connectors.connector": "ConnectorV2"},
    "connectors.connector_pipeline_v2": {"connectors.pipeline": "ConnectorPipelineV2"},
    "connectors.env_to_module": {"connectors.pipeline": "EnvToModulePipeline"},
    "connectors.module_to_env": {"connectors.pipeline": "ModuleToEnvPipeline"},
    "connectors.learner": {"connectors.pipeline": "LearnerConnectorPipeline"},
    "core": {
        "metrics.names": (
            "COMPONENT_ENV_RUNNER COMPONENT_ENV_TO_MODULE_CONNECTOR COMPONENT_EVAL_ENV_RUNNER "
            "COMPONENT_LEARNER COMPONENT_LEARNER_GROUP COMPONENT_METRICS_LOGGER "
            "COMPONENT_MODULE_TO_ENV_CONNECTOR COMPONENT_OPTIMIZER COMPONENT_RL_MODULE "
            "DEFAULT_AGENT_ID DEFAULT_MODULE_ID DEFAULT_POLICY_ID ALL_MODULES"
        ),
        "columns.names": "Columns",
    },
    "offline.offline_data": {"offline.offline_data": "OfflineData"},
    "offline.offline_prelearner": {"offline.prelearner": "OfflinePreLearner"},
    "core.columns": {"columns.names": "Columns"},
    "core.learner": {
        "learners.torch.torch_learner": "TorchLearner:Learner",
        "learners.group": "LearnerGroup",
    },
    "core.learner.learner": {"learners.torch.torch_learner": "TorchLearner:Learner"},
    "core.learner.learner_group": {"learners.group": "LearnerGroup"},
    "core.learner.torch": {"learners.torch.torch_learner": "TorchLearner"},
    "core.learner.torch.torch_learner": {"learners.torch.torch_learner": "TorchLearner"},
    "core.rl_module": {
        "modules.rl_module": "RLModule RLModuleSpec MultiRLModule MultiRLModuleSpec",
        "modules.default_model_config": "DefaultModelConfig",
    },
    "core.rl_module.apis": {
        "modules.apis": (
            "InferenceOnlyAPI QNetAPI SelfSupervisedLossAPI TargetNetworkAPI ValueFunctionAPI"
        )
    },
    "core.rl_module.apis.inference_only_api": {"modules.apis": "InferenceOnlyAPI"},
    "core.rl_module.apis.q_net_api": {"modules.apis": "QNetAPI"},
    "core.rl_module.apis.self_supervised_loss_api": {"modules.apis": "SelfSupervisedLossAPI"},
    "core.rl_module.apis.target_network_api": {
        "modules.apis": "TargetNetworkAPI TARGET_NETWORK_ACTION_DIST_INPUTS"
    },
    "core.rl_module.apis.value_function_api": {"modules.apis": "ValueFunctionAPI"},
    "core.rl_module.default_model_config": {"modules.default_model_config": "DefaultModelConfig"},
    "core.rl_module.multi_rl_module": {"modules.rl_module": "MultiRLModule MultiRLModuleSpec"},
    "core.rl_module.rl_module": {"modules.rl_module": "RLModule RLModuleSpec"},
    "core.rl_module.torch": {"modules.torch.torch_rl_module": "TorchRLModule"},
    "core.rl_module.torch.torch_rl_module": {"modules.torch.torch_rl_module": "TorchRLModule"},
    "env.env_context": {"envs.env_context": "EnvContext"},
    "env.multi_agent_env": {"envs.multi_agent_env": "MultiAgentEnv make_multi_agent"},
    "env.multi_agent_episode": {"episodes.multi_agent_episode": "MultiAgentEpisode"},
    "env.single_agent_episode": {"episodes.single_agent_episode": "SingleAgentEpisode"},
    "env.single_agent_env_runner": {"runners.single_agent_env_runner": "SingleAgentEnvRunner"},
    "env": {"envs.env_context": "EnvContext", "envs.multi_agent_env": "MultiAgentEnv"},
    "env.env_runner_group": {"runners.group": "EnvRunnerGroup"},
    "examples.envs.classes.action_mask_env": {"envs.examples.actions": "ActionMaskEnv"},
    "examples.envs.classes.cartpole_crashing": {"envs.examples.cart_poles": "CartPoleCrashing"},
    "examples.envs.classes.cartpole_sparse_rewards": {
        "envs.examples.cart_poles": "CartPoleSparseRewards"
    },
    "examples.envs.classes.cartpole_with_dict_observation_space": {
        "envs.examples.cart_poles": "CartPoleWithDictObservationSpace"
    },
    "examples.envs.classes.cliff_walking_wall_env": {"envs.examples.mazes": "CliffWalkingWallEnv"},
    "examples.envs.classes.correlated_actions_env": {
        "envs.examples.actions": "CorrelatedActionsEnv"
    },
    "examples.envs.classes.multi_agent.guess_the_number_game": {
        "envs.examples.games": "GuessTheNumberGame"
    },
    "examples.envs.classes.multi_agent.rock_paper_scissors": {
        "envs.examples.games": "RockPaperScissors"
    },
    "examples.envs.classes.multi_agent.tic_tac_toe": {"envs.examples.games": "TicTacToe"},
    "examples.envs.classes.multi_agent.two_step_game": {
        "envs.examples.games": "TwoStepGame TwoStepGameWithGroupedAgents"
    },
    "examples.envs.classes.multi_agent": {
        "envs.examples.multi_agent": (
            "MultiAgentCartPole MultiAgentMountainCar MultiAgentPendulum "
            "MultiAgentStatelessCartPole MultiAgentCartPoleWithDictObservationSpace "
            "MultiAgentNestedSpaceRepeatAfterMeEnv MultiAgentCartPoleCrashing"
        ),
        "envs.examples.games": "GuessTheNumberGame RockPaperScissors TicTacToe",
    },
    "examples.envs.classes.nested_space_repeat_after_me_env": {
        "envs.examples.actions": "NestedSpaceRepeatAfterMeEnv"
    },
    "examples.envs.classes.parametric_actions_cartpole": {
        "envs.examples.cart_poles": "ParametricActionsCartPole"
    },
    "examples.envs.classes.random_env": {
        "envs.examples.random_env": (
            "RandomMultiAgentEnv RandomEnv RandomLargeObsSpaceEnv RandomLargeObsSpaceEnvContActions"
        )
    },
    "examples.envs.classes.repeat_after_me_env": {"envs.examples.memory": "RepeatAfterMeEnv"},
    "examples.envs.classes.repeat_initial_obs_env": {"envs.examples.memory": "RepeatInitialObsEnv"},
    "examples.envs.classes.simple_corridor": {"envs.examples.mazes": "SimpleCorridor"},
    "examples.envs.classes.stateless_cartpole": {"envs.examples.memory": "StatelessCartPole"},
    "examples.envs.classes.stateless_pendulum": {"envs.examples.memory": "StatelessPendulum"},
    "examples.envs.classes.two_step_game": {
        "envs.examples.games": "TwoStepGame TwoStepGameWithGroupedAgents"
    },
    "utils.annotations": {
        "annotations": (
            "override PublicAPI DeveloperAPI OverrideToImplementCustomLogic "
            "OverrideToImplementCustomLogic_CallToSuperRecommended"
        )
    },
    "utils.checkpoints": {"checkpointable": "Checkpointable"},
    "utils.metrics": {"metrics.names": "*"},
    "utils.metrics.metrics_logger": {"metrics.metrics_logger": "MetricsLogger"},
}
"""RLlib's path -> module below `syncline.rl` -> its names; `A:B` is `A` under the name `B`."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the table, after all others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        relative = _relative(fullname)
        if relative is None:
            return None
        if relative in PATHS or any(each.startswith(f"{relative}.") for each in PATHS):
            return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)
        if fullname.startswith("syncline.rllib.") and _exists(f"{HOME}.{relative}"):
            return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)
        return None


class _Loader(importlib.abc.Loader):
    """Creates modules whose names load on first use."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _LazyModule(spec.name, f"The names of `ray.{spec.name.partition('.')[2]}`.")

    def exec_module(self, module: ModuleType) -> None:
        pass


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> object:
        return package_attribute(self.__name__, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_names(_relative(self.__name__) or "")})


def install() -> None:
    """Let imports find the modules of the table."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())


def package_attribute(module: str, name: str) -> object:
    """Return a name of a module of the table, from the module that defines it."""
    relative = _relative(module) or ""
    if name == "__all__":
        return sorted(_names(relative))
    if not name.startswith("__"):
        home = _names(relative).get(name)
        if home is not None:
            value = getattr(importlib.import_module(f"{HOME}.{home[0]}"), home[1])
            setattr(sys.modules[module], name, value)
            return value
        if module != HOME and relative and _exists(f"{HOME}.{relative}"):
            found = getattr(importlib.import_module(f"{HOME}.{relative}"), name, None)
            if found is not None:
                return found
        if importlib.util.find_spec(f"{module}.{name}") is not None:
            return importlib.import_module(f"{module}.{name}")
    raise AttributeError(
        f"module {module!r} has no attribute {name!r}.{did_you_mean(name, _names(relative))}"
    )


def _names(relative: str) -> dict[str, tuple[str, str]]:
    """Return the module and name of every public name of a path of the table."""
    found: dict[str, tuple[str, str]] = {}
    for home, names in PATHS.get(relative, {}).items():
        if names == "*":
            module: Any = importlib.import_module(f"{HOME}.{home}")
            listed = [name for name in vars(module) if name.isupper() or name[:1].isupper()]
        else:
            listed = names.split()
        for each in listed:
            name, _, public = each.partition(":")
            found[public or name] = (home, name)
    return found


def _relative(module: str) -> str | None:
    for prefix in reversed(PREFIXES):
        if module == prefix:
            return ""
        if module.startswith(f"{prefix}."):
            return module.removeprefix(f"{prefix}.")
    return None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
