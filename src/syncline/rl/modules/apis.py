"""Optional interfaces of modules, which learners rely on.

Tensors have the leading dimensions of the batch: [B, ...], or [S, L, ...] for sequences.
"""

from __future__ import annotations

import abc
from typing import Any

from syncline.rl.value_types import Batch, LearnerType, Network, Tree

TARGET_NETWORK_ACTION_DIST_INPUTS = "target_network_action_dist_inputs"
"""Column of the target network's distribution inputs."""


class ValueFunctionAPI(abc.ABC):
    """A module with a value function."""

    @abc.abstractmethod
    def compute_values(self, batch: Batch, embeddings: Tree = None) -> Tree:
        """Return the values, of shape [B] or [S, L].

        Args:
            batch: Columns; observations, and for modules with memory the state.
            embeddings: `Columns.EMBEDDINGS` of a forward pass over the same batch, to skip the
                pass through a shared encoder.
        """


class InferenceOnlyAPI(abc.ABC):
    """A module with parts that env runners do not need."""

    @abc.abstractmethod
    def get_non_inference_attributes(self) -> list[str]:
        """Return the attributes that acting does not need, such as "vf" or "encoder.critic".

        With `inference_only=True` they are deleted after `setup`, and
        `get_state(inference_only=True)` omits them.
        """


class TargetNetworkAPI(abc.ABC):
    """A module with target networks. The learner updates them."""

    @abc.abstractmethod
    def make_target_networks(self) -> None:
        """Create the target networks with the weights of their main networks."""

    @abc.abstractmethod
    def get_target_network_pairs(self) -> list[tuple[Network, Network]]:
        """Return pairs of a main network and its target network."""

    @abc.abstractmethod
    def forward_target(self, batch: Batch) -> Tree:
        """Return the output of the target networks."""


class QNetAPI(abc.ABC):
    """A module with action values."""

    @abc.abstractmethod
    def compute_q_values(self, batch: Batch) -> Batch:
        """Return `qf_preds`, of shape [B, A].

        Distributional networks also return `atoms` [K], `qf_logits` and `qf_probs` [B, A, K].
        """

    def compute_advantage_distribution(self, batch: Batch) -> Batch:
        """Return the distribution of the advantages; by default that of the action values."""
        return self.compute_q_values(batch)


class SelfSupervisedLossAPI(abc.ABC):
    """A module that computes its own loss, instead of the learner's `compute_loss_for_module`."""

    @abc.abstractmethod
    def compute_self_supervised_loss(
        self,
        *,
        learner: LearnerType,
        module_id: str,
        config: Any,
        batch: Batch,
        fwd_out: Batch,
        **kwargs: object,
    ) -> Any:
        """Return the loss as a scalar tensor.

        Args:
            learner: The calling learner; `learner.metrics` is the logger.
            module_id: This module's id.
            config: The algorithm's configuration for this module.
            batch: Columns of this module.
            fwd_out: Output of `forward_train` for this batch.
            **kwargs: For arguments of later releases.
        """
