"""BC: behavior cloning, supervised learning of the actions in recorded data.

Modules without memory only: rows are single steps, in random order.
"""

from __future__ import annotations

from typing import Any

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.bc.torch.bc_torch_learner import BCTorchLearner
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.policy_only import DefaultBCTorchRLModule
from syncline.rl.offline.offline_data import OfflineData


class BCConfig(AlgorithmConfig):
    """Options of behavior cloning."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or BC)
        self.lr = 1e-4
        self.train_batch_size = 2000
        self.num_env_runners = 0

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        if not self.is_offline:
            raise ValueError(
                "BC learns from recorded data: name them with `config.offline_data(input_=…)`."
            )
        if self.is_multi_agent:
            raise ValueError("BC trains one policy; clone those of several agents one by one.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of a policy without a value function."""
        return RLModuleSpec(module_class=DefaultBCTorchRLModule)

    def get_default_learner_class(self) -> type[BCTorchLearner]:
        """Return the learner."""
        return BCTorchLearner


class BC(Algorithm):
    """Behavior cloning."""

    @classmethod
    def get_default_config(cls) -> BCConfig:
        """Return the default options."""
        return BCConfig()

    def _build(self, config: AlgorithmConfig) -> None:
        super()._build(config)
        module = self.get_module()
        if module is not None and module.is_stateful():
            raise ValueError("BC trains modules without memory only; set `use_lstm=False`.")
        data_class = config.offline_data_class or OfflineData
        self.offline_data: Any = data_class(config)

    def training_step(self) -> None:
        """Update once for each batch of this iteration."""
        config = self.config
        for batch in self._batches(config.dataset_num_iters_per_learner):
            self.update(batch=self.learner_group.batch_of_rows({DEFAULT_MODULE_ID: batch}))

    def _batches(self, count: int | None) -> Any:
        size = self.config.train_batch_size_per_learner
        if count is None:
            return self.offline_data.one_pass(size)
        return (self.offline_data.sample(size) for _ in range(count))
