"""BC: behavior cloning, supervised learning of the actions in recorded data.

Modules without memory only: rows are single steps, in random order.
"""

from __future__ import annotations

from syncline.rl.algorithms.bc.torch.bc_torch_learner import BCTorchLearner
from syncline.rl.algorithms.marwil.marwil import MARWIL, MARWILConfig
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.policy_only import DefaultBCTorchRLModule


class BCConfig(MARWILConfig):
    """Options of behavior cloning: MARWIL without weights."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or BC)
        self.beta = 0.0
        self.postprocess_inputs = False
        self.prelearner_class = None
        self.offline_data_class = None

    def _check_beta(self) -> None:
        if self.beta != 0.0:
            raise ValueError(f"`beta={self.beta!r}` has no effect in BC; use MARWIL.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of a policy without a value function."""
        return RLModuleSpec(module_class=DefaultBCTorchRLModule)

    def get_default_learner_class(self) -> type[BCTorchLearner]:
        """Return the learner."""
        return BCTorchLearner


class BC(MARWIL):
    """Behavior cloning."""

    required_columns: tuple[str, ...] = ()

    @classmethod
    def get_default_config(cls) -> BCConfig:
        """Return the default options."""
        return BCConfig()
