"""`DirectDQN`: the gradients of DQN's loss for fully connected networks, without autograd.

A test compares them with the gradients of `DQNTorchLearner.compute_loss_for_module`, which defines
the loss.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from syncline.rl.algorithms.dqn.torch.dqn_torch_module import DefaultDQNTorchRLModule, QNetwork
from syncline.rl.buffers.replay_columns import DISCOUNTS, WEIGHTS
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.dense_stack import DenseStack, dense_stack
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.value_types import Batch


class DirectQNetwork:
    """Q-values of a `QNetwork`, and their gradients.

    Args:
        encoder: Layers before the heads.
        advantages: Head of the advantages; without dueling, of the Q-values.
        values: Head of the state's value; None without dueling.
    """

    def __init__(
        self, encoder: DenseStack, advantages: DenseStack, values: DenseStack | None
    ) -> None:
        self._encoder = encoder
        self._advantages = advantages
        self._values = values
        self.stacks = [encoder, advantages, *([] if values is None else [values])]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Return Q(s, ·), [B, A]; valid until the next call."""
        embeddings = self._encoder.forward(obs)
        outputs = self._advantages.forward(embeddings)
        if self._values is None:
            return outputs
        centered: np.ndarray = outputs - outputs.mean(1, keepdims=True)
        centered += self._values.forward(embeddings)
        return centered

    def backward(self, gradient: np.ndarray) -> None:
        """Set the gradients of the weights from the gradients of the first rows' Q-values."""
        rows = slice(len(gradient))
        if self._values is None:
            inner = self._advantages.backward(gradient, rows, into_inputs=True)
        else:
            total = gradient.sum(1, keepdims=True)
            gradient -= total / gradient.shape[1]
            inner = self._advantages.backward(gradient, rows, into_inputs=True)
            inner += self._values.backward(total, rows, into_inputs=True)
        self._encoder.backward(inner, rows)


class DirectDQN:
    """One step of DQN on rows of a replay buffer.

    Args:
        online: The network to train.
        target: The target network.
        config: The algorithm's options.
    """

    def __init__(
        self, online: DirectQNetwork, target: DirectQNetwork, config: AlgorithmConfig
    ) -> None:
        self._online = online
        self._target = target
        self._double_q = bool(config.double_q)
        self._is_huber = config.td_error_loss_fn == "huber"

    def gradients(self, columns: Batch) -> tuple[np.ndarray, Batch]:
        """Set the gradients of all weights; return the errors, [B], and metrics."""
        for stack in (*self._online.stacks, *self._target.stacks):
            stack.bind()
        obs, following = _float32(columns[Columns.OBS]), _float32(columns[Columns.NEXT_OBS])
        size = len(obs)
        rows = np.arange(size)
        after = self._target(following)
        if self._double_q:
            q_values = self._online(np.concatenate([obs, following]))
            best = after[rows, q_values[size:].argmax(1)]
        else:
            q_values = self._online(obs)
            best = after.max(1)
        actions = columns[Columns.ACTIONS]
        chosen = q_values[rows, actions]
        errors = chosen - (columns[Columns.REWARDS] + columns[DISCOUNTS] * best)
        if self._is_huber:
            slopes = errors.clip(-1.0, 1.0)
            losses = slopes * (errors - 0.5 * slopes)
        else:
            losses, slopes = errors * errors, 2.0 * errors
        if WEIGHTS in columns:
            losses, slopes = losses * columns[WEIGHTS], slopes * columns[WEIGHTS]
        gradient = np.zeros((size, q_values.shape[1]), np.float32)
        gradient[rows, actions] = slopes / size
        self._online.backward(gradient)
        loss = losses.mean()
        report = {"qf_loss": loss, "qf_mean": chosen, "td_error_mean": errors, "total_loss": loss}
        return errors, report


def direct_dqn(module: RLModule, config: AlgorithmConfig) -> DirectDQN | None:
    """Return the step for a default module with fully connected networks, else None."""
    if type(module) is not DefaultDQNTorchRLModule or module._forward_hooks:
        return None
    space = module.observation_space
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1 or config.num_atoms > 1:
        return None
    online, target = _direct_network(module.online), _direct_network(module.target)
    return None if online is None or target is None else DirectDQN(online, target, config)


def _direct_network(network: QNetwork) -> DirectQNetwork | None:
    if type(network) is not QNetwork or network._forward_hooks or network.num_atoms > 1:
        return None
    encoder, advantages = dense_stack(network.encoder), dense_stack(network.advantages)
    values = None if network.values is None else dense_stack(network.values)
    if encoder is None or advantages is None or (values is None) != (network.values is None):
        return None
    return DirectQNetwork(encoder, advantages, values)


def _float32(obs: np.ndarray) -> np.ndarray:
    return obs if obs.dtype == np.float32 else obs.astype(np.float32)
