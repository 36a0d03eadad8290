"""Replacements for RLlib's names without a counterpart in syncline; data of `public_paths`.

`public_missing` lists the names. Patterns use the syntax of `fnmatch`; the first match applies.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_TENSORFLOW = "TensorFlow is not supported: write networks in torch, as a TorchRLModule."
_POLICIES = (
    "Losses belong to learners: derive from the algorithm's learner, override "
    "`compute_loss_for_module`, and pass `config.learners(learner_class=…)`."
)
_CONNECTORS = (
    "These are connectors of the API before 2.40: derive from ConnectorV2, and pass "
    "`config.env_runners(env_to_module_connector=…)`."
)
_WORKERS = (
    "Env runners sample: derive from SingleAgentEnvRunner (`rllib.env.single_agent_env_runner`), "
    "or use callbacks and `algorithm.env_runner_group`."
)
_EXECUTION = (
    "Override `Algorithm.training_step` and call `self.sample_batch`, `self.update` and "
    "`self.env_runner_group.sync_weights`."
)
_ENVS = (
    "Vector environments are gymnasium's: pass the environment, and "
    "`config.env_runners(num_envs_per_env_runner=…, gym_env_vectorize_mode=…)`; several agents "
    "need a MultiAgentEnv."
)
_OFFLINE = (
    "Recorded data are read with `syncline.data`: `config.offline_data(input_=[paths])`, and "
    "`output=` writes them."
)
_ESTIMATORS = (
    "Off-policy estimators are not supported: evaluate with an environment, "
    "`config.evaluation(evaluation_interval=…)`."
)
_EXPLORATION = (
    "Name the exploration in the configuration, `exploration_config={'type': 'EpsilonGreedy', …}`, "
    "or override `_forward_exploration` of the module."
)
_REPLAY = (
    "Name the buffer in the configuration: `replay_buffer_config={'type': "
    "'PrioritizedEpisodeReplayBuffer', 'capacity': …}`."
)
_FILTERS = "Use the connector `rllib.connectors.env_to_module.MeanStdFilter`."
_ACTORS = "Use `syncline.remote` actors; `algorithm.env_runner_group` restarts env runners."
_META = (
    "Meta learning is not built in: write its inner loop in `compute_loss_for_module` with "
    "`torch.func.functional_call`."
)
_SPECS = "Shapes need no declaration: remove the specifications."
_TESTS = "It belongs to RLlib's own tests. `rllib.utils.test_utils.check` compares trees."
_ATARI = "Wrap the game with `gymnasium.wrappers.AtariPreprocessing` and `FrameStackObservation`."
_INSIDE = "It is an implementation detail of RLlib without a counterpart in syncline."

MODULES: tuple[tuple[str, str], ...] = (
    ("models.tf*", _TENSORFLOW),
    ("*_tf_policy", _TENSORFLOW),
    ("*_tf_policy_v2", _TENSORFLOW),
    ("*_tf_model", _TENSORFLOW),
    ("algorithms.impala.vtrace_tf", _TENSORFLOW),
    ("policy.tf_*", _TENSORFLOW),
    ("utils.tf_utils", _TENSORFLOW),
    ("*_torch_policy", _POLICIES),
    ("*_torch_model", "Derive from the algorithm's module, such as DefaultDQNTorchRLModule."),
    ("policy.torch_*", _POLICIES),
    ("policy.policy_template", _POLICIES),
    ("policy.policy_map", "`algorithm.get_policy(id)` returns policies."),
    ("connectors.action*", _CONNECTORS),
    ("connectors.agent*", _CONNECTORS),
    ("connectors.connector", _CONNECTORS),
    ("connectors.registry", _CONNECTORS),
    ("connectors.util", _CONNECTORS),
    ("evaluation.*", _WORKERS),
    ("execution*", _EXECUTION),
    ("env.base_env", _ENVS),
    ("env.vector_env", _ENVS),
    ("env.remote_base_env", _ENVS),
    ("env.vector*", _ENVS),
    ("env.external_multi_agent_env", "Only simulators with one agent are supported: ExternalEnv."),
    ("env.env_runner_state_server", _INSIDE),
    ("env.wrappers.atari_wrappers", _ATARI),
    ("env.wrappers.dm_*", "Use `shimmy` to get a gymnasium environment: `shimmy[dm-control]`."),
    ("env.wrappers.multi_agent_env_compatibility", "Return five values from `step` yourself."),
    ("env.wrappers.open_spiel", "Use `shimmy[openspiel]` for a PettingZoo environment."),
    ("offline.estimators*", _ESTIMATORS),
    ("offline.*estimator", _ESTIMATORS),
    ("offline.feature_importance", _ESTIMATORS),
    ("offline.offline_eval*", _ESTIMATORS),
    ("offline.offline_policy_evaluation_runner", _ESTIMATORS),
    ("offline.*", _OFFLINE),
    ("utils.exploration*", _EXPLORATION),
    ("utils.replay_buffers*", _REPLAY),
    ("utils.filter*", _FILTERS),
    ("utils.actor_manager", _ACTORS),
    ("utils.actors", _ACTORS),
    ("utils.runners*", _ACTORS),
    ("core.learner.*differentiable*", _META),
    ("core.learner.torch.torch_meta_learner", _META),
    ("core.models.specs*", _SPECS),
    ("core.testing*", _TESTS),
    ("core.learner.training_data", "Pass `samples=` or `batch=` to `learner_group.update`."),
    ("algorithms.*.utils*", _INSIDE),
    ("algorithms.dreamerv3.*", "See `syncline.rl.algorithms.dreamerv3`: its networks differ."),
    ("algorithms.*.default_*_rl_module", "Import the module of torch, `Default…TorchRLModule`."),
    ("algorithms.*", _INSIDE),
    ("models.repeated_values", "Use a Dict with a padded Box and a mask."),
    ("models.torch.complex_input_net", "Default modules take Dict and Tuple observations."),
    ("models.torch.mingpt", "Use `model_config={'use_attention': True}`."),
    ("models.torch.modules*", "Use the layers of `syncline.rl.modules.torch.attention`."),
    ("models.*", _INSIDE),
    ("core.models.*", _INSIDE),
    ("utils.*", _INSIDE),
)
"""Advice for modules that are missing or incomplete, by path."""

NAMES: tuple[tuple[str, str], ...] = (
    ("*:*TF*Policy", _TENSORFLOW),
    ("*:TF*", _TENSORFLOW),
    ("*:tf*", _TENSORFLOW),
    ("*:*TorchPolicy*", _POLICIES),
    ("*:build_*policy*", _POLICIES),
    ("*:RolloutWorker", _WORKERS),
    ("*:BaseEnv", _ENVS),
    ("*:VectorEnv", _ENVS),
    ("*:RemoteBaseEnv", _ENVS),
    ("*:DMEnv", "Use `shimmy[dm-control]` for a gymnasium environment."),
    ("*:DMCEnv", "Use `shimmy[dm-control]` for a gymnasium environment."),
    ("*:ExternalMultiAgentEnv", "Only simulators with one agent are supported: ExternalEnv."),
    ("*:MultiAgentEnvWrapper", _ENVS),
    ("*:ExternalEnvWrapper", _ENVS),
    ("evaluation:*", _WORKERS),
    ("execution:*", _EXECUTION),
    ("offline:*", _OFFLINE),
    ("algorithms.algorithm_config:DifferentiableAlgorithmConfig", _META),
    ("algorithms.registry:*", "`tune.registry.get_trainable_cls(name)` returns algorithms."),
    ("core.learner.learner_group:RLlibBackendExecutor", _INSIDE),
    ("*:MultiRLModuleConfig", "Pass keywords to the constructor, or a MultiRLModuleSpec."),
    ("*:RLModuleConfig", "Pass keywords to the constructor, or an RLModuleSpec."),
    ("*:Filter*", _FILTERS),
)
"""Advice for single names, as "module:name"."""


def reason_of(module: str, name: str) -> str:
    """Return advice for a name of RLlib without a counterpart."""
    for pattern, reason in NAMES:
        if fnmatchcase(f"{module}:{name}", pattern):
            return reason
    for pattern, reason in MODULES:
        if fnmatchcase(module, pattern):
            return reason
    return _INSIDE
