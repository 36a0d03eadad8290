"""`DirectSAC`: the gradients of SAC's losses for fully connected networks, without autograd.

Continuous actions only. A test compares them with the gradients of
`SACTorchLearner.compute_loss_for_module`, which defines the losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.algorithms.sac.torch.critics import Critic, Critics
from syncline.rl.algorithms.sac.torch.sac_torch_module import DefaultSACTorchRLModule
from syncline.rl.buffers.replay_columns import DISCOUNTS, WEIGHTS
from syncline.rl.columns.names import Columns
from syncline.rl.learners.torch.dense_stack import DenseStack, Scratch, dense_stack
from syncline.rl.modules.numpy_acting import HALF_LOG_2PI
from syncline.rl.modules.torch.distributions.gaussian import SQUASHED_LOG_STD
from syncline.rl.value_types import Batch

LOG_2 = math.log(2.0)


@dataclass(frozen=True, kw_only=True)
class DirectNetworks:
    """The networks of a module."""

    policy: DenseStack
    critics: list[DenseStack]
    targets: list[DenseStack]


class DirectSAC:
    """One step of SAC on rows of a replay buffer.

    Args:
        networks: Policy, critics and targets.
        log_alpha: Logarithm of the temperature, [1], with a gradient.
        target_entropy: Target value of the entropy.
        seeded: Derives the random numbers of an update from the seed and the update's index.
    """

    def __init__(
        self,
        networks: DirectNetworks,
        log_alpha: nn.Parameter,
        target_entropy: float,
        seeded: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._policy = networks.policy
        self._critics = networks.critics
        self._targets = networks.targets
        self._log_alpha = log_alpha
        self._target_entropy = target_entropy
        self._seeded = seeded

    def gradients(self, columns: Batch) -> tuple[np.ndarray, Batch]:
        """Set the gradients of all weights; return the errors, [B], and metrics."""
        for stack in (self._policy, *self._critics, *self._targets):
            stack.bind()
        obs, following = (_rows(columns[name]) for name in (Columns.OBS, Columns.NEXT_OBS))
        size = len(obs)
        log_alpha = float(self._log_alpha.detach())
        alpha = math.exp(log_alpha)

        logits = self._policy.forward(np.concatenate([obs, following]))
        with self._seeded():
            next_noise, noise = (_normal(size, logits.shape[1] // 2) for _ in range(2))
        samples = _SquashedSamples(logits, np.concatenate([noise, next_noise]))
        pairs = np.concatenate([following, samples.actions[size:]], axis=1)
        values = _smallest([each.forward(pairs) for each in self._targets])[0]
        soft = values - alpha * samples.logp[size:]
        targets = columns[Columns.REWARDS] + columns[DISCOUNTS] * soft

        found = self._learn_values(obs, columns, targets)
        policy_loss = self._learn_policy(obs, samples, alpha)
        entropy = -samples.logp[:size]
        slope = float(entropy.mean()) - self._target_entropy
        assert self._log_alpha.grad is not None
        self._log_alpha.grad.fill_(slope)
        report = {
            **found,
            "policy_loss": policy_loss,
            "alpha_loss": log_alpha * slope,
            "alpha_value": alpha,
            "target_entropy": self._target_entropy,
            "entropy": entropy,
            "total_loss": found["qf_loss"] + policy_loss + log_alpha * slope,
        }
        return found["td_error_mean"], report

    def _learn_values(self, obs: np.ndarray, columns: Batch, targets: np.ndarray) -> Batch:
        """Set the gradients of 1/2 (Q(s, a) - y)^2; return metrics."""
        pairs = np.concatenate([obs, _rows(columns[Columns.ACTIONS])], axis=1)
        weights = columns.get(WEIGHTS, np.float32(1.0))
        loss, absolute, first = 0.0, [], None
        for critic in self._critics:
            values = critic.forward(pairs)[:, 0]
            first = values.copy() if first is None else first
            errors = values - targets
            slopes = weights * errors
            loss += 0.5 * float(slopes.dot(errors)) / len(obs)
            absolute.append(np.abs(errors))
            critic.backward((slopes / np.float32(len(obs)))[:, None])
        return {
            "qf_loss": loss,
            "qf_mean": first,
            "td_error_mean": np.mean(absolute, axis=0, dtype=np.float32),
        }

    def _learn_policy(self, obs: np.ndarray, samples: _SquashedSamples, alpha: float) -> float:
        """Set the gradients of alpha log pi(a | s) - min_i Q_i(s, a); return this loss."""
        size = len(obs)
        pairs = np.concatenate([obs, samples.actions[:size]], axis=1)
        values, choices = _smallest([each.forward(pairs) for each in self._critics])
        of_actions: np.ndarray = np.empty((size, samples.actions.shape[1]), np.float32)
        for number, critic in enumerate(self._critics):
            chosen = np.flatnonzero(choices == number)
            gradient = np.full((len(chosen), 1), -1.0 / size, np.float32)
            inner = critic.backward(gradient, chosen, into_weights=False, into_inputs=True)
            of_actions[chosen] = inner[:, obs.shape[1] :]
        self._policy.backward(samples.gradient(of_actions, alpha / size), slice(size))
        return alpha * float(samples.logp[:size].mean()) - float(values.mean())


class _SquashedSamples:
    """Actions tanh(mean + std z), and their log-densities.

    Args:
        logits: Means and log standard deviations, [B, 2A].
        noise: z, [B, A].
    """

    def __init__(self, logits: np.ndarray, noise: np.ndarray) -> None:
        width = noise.shape[1]
        raw = logits[:, width:]
        log_std = raw.clip(*SQUASHED_LOG_STD)
        self._is_free = raw == log_std
        self._spread = np.exp(log_std) * noise
        unsquashed = logits[:, :width] + self._spread
        self.actions: np.ndarray = np.tanh(unsquashed)
        jacobian = 2.0 * (LOG_2 - unsquashed - np.logaddexp(np.float32(0.0), -2.0 * unsquashed))
        density = -0.5 * noise * noise - log_std - np.float32(HALF_LOG_2PI)
        self.logp: np.ndarray = (density - jacobian).sum(1)

    def gradient(self, of_actions: np.ndarray, of_logp: float) -> np.ndarray:
        """Return the gradient of the first rows' logits, [rows, 2A].

        Args:
            of_actions: Gradient of the actions of these rows, [rows, A].
            of_logp: Gradient of each log-density.
        """
        rows = slice(len(of_actions))
        actions = self.actions[rows]
        # d log pi / d u = 2 tanh(u) for fixed noise.
        of_means = of_actions * (1.0 - actions * actions) + (2.0 * of_logp) * actions
        of_log_std = (of_means * self._spread[rows] - of_logp) * self._is_free[rows]
        gradient: np.ndarray = np.concatenate([of_means, of_log_std], axis=1, dtype=np.float32)
        return gradient


def direct_networks(module: object) -> DirectNetworks | None:
    """Return the networks of a default module if they are fully connected, else None."""
    if type(module) is not DefaultSACTorchRLModule or module._forward_hooks:
        return None
    spaces = module.observation_space, module.action_space
    if not all(isinstance(each, gym.spaces.Box) and len(each.shape) == 1 for each in spaces):
        return None
    scratch: Scratch = {}
    policy = dense_stack(module.pi_encoder, module.pi, scratch=scratch)
    critics, targets = _stacks(module.critics, scratch), _stacks(module.targets, scratch)
    if policy is None or critics is None or targets is None:
        return None
    return DirectNetworks(policy=policy, critics=critics, targets=targets)


def _stacks(critics: Critics, scratch: Scratch) -> list[DenseStack] | None:
    if type(critics) is not Critics or critics._forward_hooks:
        return None
    stacks = [
        dense_stack(each.layers, scratch=scratch)
        for each in critics.each
        if type(each) is Critic and each.encoder is None and not each._forward_hooks
    ]
    known = [each for each in stacks if each is not None]
    return known if len(known) == len(critics.each) else None


def _smallest(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimum over critics of values [B, 1], as [B], and the index of its critic."""
    first = values[0][:, 0]
    if len(values) == 1:
        return first, np.zeros(len(first), np.int64)
    together = np.concatenate(values, axis=1)
    choices = together.argmin(1)
    return together[np.arange(len(first)), choices], choices


def _normal(rows: int, width: int) -> np.ndarray:
    drawn: np.ndarray = torch.randn(rows, width).numpy()
    return drawn


def _rows(column: np.ndarray) -> np.ndarray:
    return column if column.dtype == np.float32 else column.astype(np.float32)
