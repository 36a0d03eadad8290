"""APPO: asynchronous PPO, as IMPACT (Luo et al. 2020, https://arxiv.org/abs/1912.00167).

IMPALA with PPO's clipped objective relative to a target policy, and a circular buffer that reuses
each batch several times.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from syncline.rl.algorithms.appo.torch.appo_torch_learner import APPOTorchLearner
from syncline.rl.algorithms.impala.impala import IMPALA, IMPALAConfig
from syncline.rl.config.section import NotProvided
from syncline.rl.plans.batch_buffer import BatchBuffer

ConfigT = TypeVar("ConfigT", bound="APPOConfig")


class APPOConfig(IMPALAConfig):
    """Options of APPO."""

    use_critic: bool = True
    clip_param: float = 0.4
    use_kl_loss: bool = False
    kl_coeff: float = 1.0
    kl_target: float = 0.01
    tau: float = 1.0
    target_network_update_freq: int = 2
    circular_buffer_num_batches: int = 8
    circular_buffer_iterations_per_batch: int = 2

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or APPO)

    def training(
        self: ConfigT,
        *,
        use_critic: bool = NotProvided,
        clip_param: float = NotProvided,
        use_kl_loss: bool = NotProvided,
        kl_coeff: float = NotProvided,
        kl_target: float = NotProvided,
        tau: float = NotProvided,
        target_network_update_freq: int = NotProvided,
        circular_buffer_num_batches: int = NotProvided,
        circular_buffer_iterations_per_batch: int = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            use_critic: Has no effect: APPO always has a value function.
            clip_param: Clip range of the probability ratio to the target policy, around 1.
            use_kl_loss: Add the KL divergence from the target policy to the loss.
            kl_coeff: Initial coefficient of that divergence; it adapts to `kl_target`.
            kl_target: Target value of the divergence.
            tau: Weight of the online policy in updates of the target policy.
            target_network_update_freq: Interval between updates of the target policy, in units of
                `circular_buffer_num_batches * circular_buffer_iterations_per_batch` passes.
            circular_buffer_num_batches: Batches in the circular buffer.
            circular_buffer_iterations_per_batch: Passes over each batch.
            kwargs: Options of IMPALA and of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        if self.clip_param <= 0:
            raise ValueError(f"`clip_param={self.clip_param!r}` must be positive.")
        for name in (
            "target_network_update_freq",
            "circular_buffer_num_batches",
            "circular_buffer_iterations_per_batch",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}={getattr(self, name)!r}` must be at least 1.")

    @property
    def passes_per_target_update(self) -> int:
        """Passes over batches between updates of the target policy."""
        return max(
            int(
                self.target_network_update_freq
                * self.circular_buffer_num_batches
                * self.circular_buffer_iterations_per_batch
            ),
            1,
        )

    def get_default_learner_class(self) -> type[APPOTorchLearner]:
        """Return APPO's learner."""
        return APPOTorchLearner

    def batch_buffer(self, seed: int) -> BatchBuffer:
        """Return the circular buffer."""
        return BatchBuffer(
            capacity=self.circular_buffer_num_batches,
            passes=self.circular_buffer_iterations_per_batch,
            random=np.random.default_rng(seed),
        )


class APPO(IMPALA):
    """Asynchronous proximal policy optimization."""

    @classmethod
    def get_default_config(cls) -> APPOConfig:
        """Return the default options."""
        return APPOConfig()
