"""TQC: SAC with critics that predict quantiles of returns and drop the largest ones
(Kuznetsov et al. 2020, https://arxiv.org/abs/2005.04269). Continuous actions only.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithms.sac.sac import SAC, SACConfig
from syncline.rl.algorithms.tqc.torch.tqc_torch_learner import (
    DefaultTQCTorchRLModule,
    TQCTorchLearner,
)
from syncline.rl.config.section import NotProvided
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.value_types import Options

ConfigT = TypeVar("ConfigT", bound="TQCConfig")


class TQCConfig(SACConfig):
    """Options of TQC."""

    n_quantiles: int = 25
    n_critics: int = 2
    top_quantiles_to_drop_per_net: int = 2

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or TQC)

    def training(
        self: ConfigT,
        *,
        n_quantiles: int = NotProvided,
        n_critics: int = NotProvided,
        top_quantiles_to_drop_per_net: int = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            n_quantiles: Number of quantiles of each critic.
            n_critics: Number of critics.
            top_quantiles_to_drop_per_net: Number of largest quantiles to drop from targets, per
                critic.
            kwargs: Options of SAC.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        for name in ("n_quantiles", "n_critics"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}={getattr(self, name)!r}` must be at least 1.")
        if not 0 <= self.top_quantiles_to_drop_per_net < self.n_quantiles:
            raise ValueError(
                f"`top_quantiles_to_drop_per_net={self.top_quantiles_to_drop_per_net!r}` must be "
                f"at least 0 and less than `n_quantiles={self.n_quantiles}`."
            )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of policy and critics."""
        return RLModuleSpec(module_class=DefaultTQCTorchRLModule, catalog_class=Catalog)

    def get_default_learner_class(self) -> type[TQCTorchLearner]:
        """Return TQC's learner."""
        return TQCTorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {
            **super()._model_config_auto_includes,
            "n_quantiles": self.n_quantiles,
            "n_critics": self.n_critics,
        }


class TQC(SAC):
    """Truncated quantile critics."""

    @classmethod
    def get_default_config(cls) -> TQCConfig:
        """Return the default options."""
        return TQCConfig()
