"""MARWIL: exponentially weighted imitation learning (Wang et al. 2018,
https://papers.nips.cc/paper/7866): clones recorded actions and gives better ones more weight.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithm.offline import OfflineAlgorithm, check_offline
from syncline.rl.algorithms.marwil.torch.marwil_torch_learner import MARWILTorchLearner
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.section import NotProvided
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule
from syncline.rl.modules.torch.catalog import PPOCatalog
from syncline.rl.offline.returns_to_go import ReturnsData, ReturnsPreLearner
from syncline.rl.value_types import Options

ConfigT = TypeVar("ConfigT", bound="MARWILConfig")


class MARWILConfig(AlgorithmConfig):
    """Options of MARWIL."""

    beta: float = 1.0
    bc_logstd_coeff: float = 0.0
    moving_average_sqd_adv_norm_update_rate: float = 1e-8
    moving_average_sqd_adv_norm_start: float = 100.0
    vf_coeff: float = 1.0

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or MARWIL)
        self.lr = 1e-4
        self.train_batch_size = 2000
        self.num_env_runners = 0
        self.postprocess_inputs = True
        self.prelearner_class = ReturnsPreLearner
        self.offline_data_class = ReturnsData

    def training(
        self: ConfigT,
        *,
        beta: float = NotProvided,
        bc_logstd_coeff: float = NotProvided,
        moving_average_sqd_adv_norm_update_rate: float = NotProvided,
        moving_average_sqd_adv_norm_start: float = NotProvided,
        vf_coeff: float = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            beta: Factor of the advantages in the exponent; 0 for behavior cloning.
            bc_logstd_coeff: Factor of the log standard deviations of Gaussian policies in the loss;
                positive values increase exploration.
            moving_average_sqd_adv_norm_update_rate: Weight of a batch in the moving average of
                squared advantages.
            moving_average_sqd_adv_norm_start: Initial value of that average.
            vf_coeff: Factor of the value function's loss.
            kwargs: Options of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        check_offline(self, type(self).__name__.removesuffix("Config"))
        self._check_beta()

    def _check_beta(self) -> None:
        if not 0.0 <= self.beta <= 1.0:
            raise ValueError(f"`beta={self.beta!r}` must be between 0 and 1.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of policy and value function."""
        return RLModuleSpec(module_class=DefaultPPOTorchRLModule, catalog_class=PPOCatalog)

    def get_default_learner_class(self) -> Any:
        """Return MARWIL's learner."""
        return MARWILTorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {**super()._model_config_auto_includes, "vf_share_layers": False}


class MARWIL(OfflineAlgorithm):
    """Monotonic advantage re-weighted imitation learning."""

    required_columns: tuple[str, ...] = (Columns.RETURNS_TO_GO,)

    @classmethod
    def get_default_config(cls) -> MARWILConfig:
        """Return the default options."""
        return MARWILConfig()
