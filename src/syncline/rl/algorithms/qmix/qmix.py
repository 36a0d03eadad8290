"""QMIX (Rashid et al. 2018, https://arxiv.org/abs/1803.11485) and VDN (Sunehag et al. 2018,
https://arxiv.org/abs/1706.05296): team values for a group of agents with a common reward.

All agents share one Q-network; a mixer combines their values to the value of the team. Learns from
replayed whole episodes, with double Q-learning and target networks. `mixer=None` trains independent
Q-learners on the team reward. Not included: the last action as input of the agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.qmix.episode_store import EpisodeStore
from syncline.rl.algorithms.qmix.torch.qmix_torch_learner import QMixTorchLearner
from syncline.rl.algorithms.qmix.torch.qmix_torch_module import QMixTorchRLModule
from syncline.rl.checkpointable import StateDict
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.schedule import Schedule
from syncline.rl.config.section import NotProvided, check_choice
from syncline.rl.learners.group import fragments_of
from syncline.rl.metrics.names import REPLAY_BUFFER_RESULTS
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.runners.multi_agent_env_runner import MultiAgentEnvRunner
from syncline.rl.value_types import OptionMapping, Options, OptionSchedule, Results, Selection

ConfigT = TypeVar("ConfigT", bound="QMixConfig")


class QMixConfig(AlgorithmConfig):
    """Options of QMIX."""

    mixer: str | None = "qmix"
    mixing_embed_dim: int = 32
    double_q: bool = True
    epsilon: OptionSchedule = [(0, 1.0), (40_000, 0.01)]
    target_network_update_freq: int = 500
    tau: float = 1.0
    optim_alpha: float = 0.99
    optim_eps: float = 1e-5
    replay_buffer_config: Options = {"type": "EpisodeReplayBuffer", "capacity": 1000}
    num_steps_sampled_before_learning_starts: int = 1000
    store_buffer_in_checkpoints: bool = True

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or QMix)
        self.lr = 5e-4
        self.train_batch_size = 32
        self.grad_clip = 10.0
        self.rollout_fragment_length = 4
        self.min_sample_timesteps_per_iteration = 1000
        self.evaluation(evaluation_config=AlgorithmConfig.overrides(explore=False))

    def training(
        self: ConfigT,
        *,
        mixer: Literal["qmix", "vdn"] | None = NotProvided,
        mixing_embed_dim: int = NotProvided,
        double_q: bool = NotProvided,
        epsilon: OptionSchedule = NotProvided,
        target_network_update_freq: int = NotProvided,
        tau: float = NotProvided,
        optim_alpha: float = NotProvided,
        optim_eps: float = NotProvided,
        replay_buffer_config: Mapping[str, object] = NotProvided,
        num_steps_sampled_before_learning_starts: int = NotProvided,
        store_buffer_in_checkpoints: bool = NotProvided,
        **kwargs: object,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            mixer: "qmix", "vdn" (the sum), or None for independent Q-learners.
            mixing_embed_dim: Width of QMIX's mixing network.
            double_q: Choose the next actions with the online network.
            epsilon: Probability of a random action, or a schedule over environment steps.
            target_network_update_freq: Environment steps between updates of the target networks.
            tau: Weight of the online network in these updates.
            optim_alpha: Smoothing constant of RMSProp.
            optim_eps: Epsilon of RMSProp.
            replay_buffer_config: `capacity` in episodes; keys are merged into the defaults.
            num_steps_sampled_before_learning_starts: Environment steps before the first update.
            store_buffer_in_checkpoints: Save the buffer so that a restored run continues exactly.
            kwargs: Options of all algorithms; `train_batch_size` counts episodes.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        if replay_buffer_config is not NotProvided:
            given["replay_buffer_config"] = {**self.replay_buffer_config, **replay_buffer_config}
        return self._set(given)

    def update_from_dict(self: ConfigT, config_dict: OptionMapping) -> ConfigT:
        """Set options from a dictionary; nested dictionaries are merged."""
        for key in ("replay_buffer_config",):
            if isinstance(config_dict.get(key), Mapping):
                config_dict = {**config_dict, key: {**getattr(self, key), **config_dict[key]}}
        return super().update_from_dict(config_dict)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        check_choice("mixer", self.mixer, ("qmix", "vdn", None))
        self.epsilon_schedule()
        if self.num_learners:
            raise ValueError(
                f"QMIX trains in the algorithm's process, not on `num_learners="
                f"{self.num_learners}`: set it to 0."
            )

    def epsilon_schedule(self) -> Any:
        """Return `epsilon`, or the epsilon of an `exploration_config` from older releases."""
        older = self.exploration_config
        epsilon = self.epsilon
        if "epsilon_timesteps" in older or "final_epsilon" in older:
            epsilon = [
                (0, older.get("initial_epsilon", 1.0)),
                (older.get("epsilon_timesteps", 40_000), older.get("final_epsilon", 0.01)),
            ]
        Schedule(epsilon, "epsilon")
        return epsilon

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of the team's Q-network."""
        return RLModuleSpec(module_class=QMixTorchRLModule)

    def get_default_learner_class(self) -> type[QMixTorchLearner]:
        """Return QMIX's learner."""
        return QMixTorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {
            **super()._model_config_auto_includes,
            "fcnet_hiddens": [64],
            "fcnet_activation": "relu",
            "use_gru": True,
            "lstm_cell_size": 64,
            "mixer": self.mixer,
            "mixing_embed_dim": self.mixing_embed_dim,
            "double_q": self.double_q,
            "epsilon": self.epsilon_schedule(),
        }


class QMix(Algorithm):
    """QMIX, VDN or independent Q-learners."""

    @classmethod
    def get_default_config(cls) -> QMixConfig:
        """Return the default options."""
        return QMixConfig()

    def _build(self, config: AlgorithmConfig) -> None:
        super()._build(config)
        self.stores: dict[str, EpisodeStore] = {}

    def env_runner_class(self, config: AlgorithmConfig) -> type:
        """Return the class of env runners: groups are agents of a `MultiAgentEnv`."""
        return config.env_runner_cls or MultiAgentEnvRunner

    def store(self, module_id: str) -> EpisodeStore:
        """Return the episodes of a module."""
        if module_id not in self.stores:
            capacity = self.config.replay_buffer_config["capacity"]
            self.stores[module_id] = EpisodeStore(capacity, self.seed)
        return self.stores[module_id]

    def training_step(self) -> None:
        """Sample, store finished episodes, and train on replayed ones."""
        config = self.config
        samples = self.env_runner_group.sample_steps(step=self._steps_sampled)
        self.log_samples(samples)
        for module_id, fragments in fragments_of(samples).items():
            for fragment in fragments:
                self.store(module_id).add(fragment)
        if self._steps_sampled < config.num_steps_sampled_before_learning_starts:
            return
        drawn = {
            module_id: store.sample(config.train_batch_size_per_learner)
            for module_id, store in self.stores.items()
            if len(store)
        }
        if drawn:
            self.update(batch=self.learner_group.batch_of_rows(drawn))
            self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)

    def _results(self, returned: object, calls: int) -> Results:
        found = super()._results(returned, calls)
        found[REPLAY_BUFFER_RESULTS] = {
            module_id: {
                "num_episodes_stored": len(store),
                "num_steps_stored": store.num_steps,
                "num_episodes_added_lifetime": store.num_added,
            }
            for module_id, store in self.stores.items()
        }
        return found

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return everything that the next iteration depends on."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        if self.config.store_buffer_in_checkpoints:
            state["episode_stores"] = {
                module_id: store.get_state() for module_id, store in self.stores.items()
            }
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore a state."""
        super().set_state(state)
        for module_id, saved in state.get("episode_stores", {}).items():
            self.store(module_id).set_state(saved)


class VDNConfig(QMixConfig):
    """Options of VDN."""

    mixer: str | None = "vdn"

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or VDN)


class VDN(QMix):
    """Value decomposition: QMIX with the sum as mixer."""

    @classmethod
    def get_default_config(cls) -> VDNConfig:
        """Return the default options."""
        return VDNConfig()
