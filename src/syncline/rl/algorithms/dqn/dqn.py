"""DQN: deep Q-networks (Mnih et al. 2015, https://doi.org/10.1038/nature14236), with the
extensions of Rainbow (Hessel et al. 2018, https://arxiv.org/abs/1710.02298) as options: double,
dueling, n-step, prioritized, noisy and distributional (C51).
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithm.off_policy import OffPolicyAlgorithm, OffPolicyConfig
from syncline.rl.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from syncline.rl.algorithms.dqn.torch.dqn_torch_module import DefaultDQNTorchRLModule
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.exploration_options import epsilon_schedule, softmax_temperature
from syncline.rl.config.schedule import Schedule
from syncline.rl.config.section import NotProvided, check_choice
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.value_types import Options, OptionSchedule

ConfigT = TypeVar("ConfigT", bound="DQNConfig")


class DQNConfig(OffPolicyConfig):
    """Options of DQN."""

    epsilon: OptionSchedule = [(0, 1.0), (10_000, 0.05)]
    double_q: bool = True
    dueling: bool = True
    noisy: bool = False
    sigma0: float = 0.5
    num_atoms: int = 1
    v_min: float = -10.0
    v_max: float = 10.0
    hiddens: list[int] = [256]
    td_error_loss_fn: str = "huber"
    adam_epsilon: float = 1e-8
    burn_in_len: int = 0
    categorical_distribution_temperature: float = 1.0
    before_learn_on_batch: Any = None

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DQN)
        self.lr = 5e-4
        self.train_batch_size = 32
        self.grad_clip = 40.0
        self.rollout_fragment_length = "auto"
        self.min_sample_timesteps_per_iteration = 1000
        self.evaluation(evaluation_config=AlgorithmConfig.overrides(explore=False))

    def training(
        self: ConfigT,
        *,
        epsilon: OptionSchedule = NotProvided,
        double_q: bool = NotProvided,
        dueling: bool = NotProvided,
        noisy: bool = NotProvided,
        sigma0: float = NotProvided,
        num_atoms: int = NotProvided,
        v_min: float = NotProvided,
        v_max: float = NotProvided,
        hiddens: list[int] = NotProvided,
        td_error_loss_fn: str = NotProvided,
        adam_epsilon: float = NotProvided,
        burn_in_len: int = NotProvided,
        categorical_distribution_temperature: float = NotProvided,
        before_learn_on_batch: Any = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            epsilon: Probability of a random action, or a schedule over environment steps.
            double_q: Choose the next action with the online network (van Hasselt et al. 2016).
            dueling: Separate heads for value and advantages (Wang et al. 2016).
            noisy: Explore with noise in the weights (Fortunato et al. 2018) instead of epsilon.
            sigma0: Initial scale of that noise.
            num_atoms: Atoms of the distribution of returns (Bellemare et al. 2017); 1 for none.
            v_min: Smallest atom.
            v_max: Largest atom.
            hiddens: Has no effect; the heads' layers are `model_config.head_fcnet_hiddens`.
            td_error_loss_fn: "huber" or "mse".
            adam_epsilon: Epsilon of Adam.
            burn_in_len: First steps of a sequence, which only warm up the state of a recurrent
            module.
            categorical_distribution_temperature: Has no effect.
            before_learn_on_batch: Has no effect.
            kwargs: Options of all algorithms with a replay buffer.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        check_choice("td_error_loss_fn", self.td_error_loss_fn, ("huber", "mse"))
        Schedule(self.epsilon, "epsilon")
        if self.num_atoms < 1 or (self.num_atoms > 1 and self.v_min >= self.v_max):
            raise ValueError(
                f"`num_atoms={self.num_atoms}` atoms between `v_min={self.v_min}` and "
                f"`v_max={self.v_max}` do not form a distribution: use at least 1 atom and "
                "`v_min < v_max`."
            )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of a Q-network."""
        return RLModuleSpec(module_class=DefaultDQNTorchRLModule, catalog_class=Catalog)

    def get_default_learner_class(self) -> type[DQNTorchLearner]:
        """Return DQN's learner."""
        return DQNTorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {
            **super()._model_config_auto_includes,
            "double_q": self.double_q,
            "dueling": self.dueling,
            "noisy": self.noisy,
            "sigma0": self.sigma0,
            "num_atoms": self.num_atoms,
            "v_min": self.v_min,
            "v_max": self.v_max,
            "epsilon": epsilon_schedule(self.exploration_config) or self.epsilon,
            "softmax_temperature": softmax_temperature(self.exploration_config),
        }


class DQN(OffPolicyAlgorithm):
    """Deep Q-networks."""

    @classmethod
    def get_default_config(cls) -> DQNConfig:
        """Return the default options."""
        return DQNConfig()
