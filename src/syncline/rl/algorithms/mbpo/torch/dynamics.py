"""`Dynamics`: trains an ensemble on transitions and predicts steps with it.

Covered: normalization, training with early stopping, the choice of the best members, sampling of
next states. Not covered: the networks (`ensemble`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from syncline.rl.algorithms.mbpo.torch.ensemble import DynamicsEnsemble
from syncline.rl.columns.names import Columns
from syncline.rl.learners.torch.adam import FlatAdam
from syncline.rl.learners.torch.flat_parameters import FlatParameters
from syncline.rl.value_types import StateDict

LEAST_STD = 1e-6
MOST_VALIDATION_ROWS = 5000
IMPROVEMENT = 0.01
"""Minimum relative decrease of the validation error that counts as an improvement."""


@dataclass(frozen=True, kw_only=True)
class DynamicsOptions:
    """Options of `dynamics_model`."""

    ensemble_size: int = 7
    """Number of networks."""
    num_elites: int = 5
    """Number of networks used for predictions: those with the smallest validation errors."""
    fcnet_hiddens: list[int] = field(default_factory=lambda: [200, 200, 200, 200])
    """Widths of the hidden layers."""
    lr: float = 1e-3
    """Learning rate."""
    weight_decay: float = 1e-5
    """L2 penalty."""
    batch_size: int = 256
    """Rows per minibatch of each network."""
    train_epochs: int = 500
    """Maximum number of epochs per training."""
    patience: int = 5
    """Epochs without improvement after which training stops."""
    valid_split_ratio: float = 0.2
    """Fraction of the data held out for validation, at most 5 000 rows."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_elites <= self.ensemble_size:
            raise ValueError(
                f"`dynamics_model`: `num_elites={self.num_elites}` must be between 1 and "
                f"`ensemble_size={self.ensemble_size}`."
            )
        if not 0.0 < self.valid_split_ratio < 1.0:
            raise ValueError(
                f"`dynamics_model`: `valid_split_ratio={self.valid_split_ratio}` must be between 0 "
                "and 1."
            )


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """Result of a training."""

    num_epochs: int
    train_loss: float
    """Mean loss of the last epoch."""
    validation_error: float
    """Mean validation error of the best members."""


class Dynamics:
    """Predicts next observations, rewards and terminal states.

    Not thread-safe.

    Args:
        observation_size: Length of observations.
        action_size: Length of actions as vectors.
        options: Options.
        random: Source of all random numbers.
        device: Device of the networks.
    """

    def __init__(
        self,
        *,
        observation_size: int,
        action_size: int,
        options: DynamicsOptions,
        random: np.random.Generator,
        device: torch.device | None = None,
    ) -> None:
        self.options = options
        self._random = random
        self._device = device or torch.device("cpu")
        inputs, outputs = observation_size + action_size, observation_size + 1
        self.ensemble = DynamicsEnsemble(
            members=options.ensemble_size,
            inputs=inputs,
            outputs=outputs,
            hiddens=options.fcnet_hiddens,
            random=random,
        ).to(self._device)
        self._flat = FlatParameters(list(self.ensemble.parameters()))
        self._adam = FlatAdam([self._flat.vector], lr=options.lr, weight_decay=options.weight_decay)
        self.elites = np.arange(options.num_elites)
        self._mean = np.zeros(inputs + outputs, np.float32)
        self._std = np.ones(inputs + outputs, np.float32)
        self._inputs = inputs

    # -- training

    def fit(self, transitions: Mapping[str, np.ndarray]) -> TrainingReport:
        """Train on transitions [N, …] until no member improves on the held-out ones.

        Every member sees a different bootstrap sample and keeps the weights with its smallest
        validation error.

        Args:
            transitions: `obs` [N, O], `actions` [N, A] as vectors, `rewards`, `new_obs` and
                `terminateds`.
        """
        options, random = self.options, self._random
        rows, terminated = self._rows(transitions)
        order = random.permutation(len(rows))
        held_out = min(int(len(rows) * options.valid_split_ratio), MOST_VALIDATION_ROWS)
        valid, train = order[: max(held_out, 1)], order[held_out:]
        self._mean = rows[train].mean(0)
        self._std = np.maximum(rows[train].std(0), LEAST_STD)
        data = torch.from_numpy((rows - self._mean) / self._std).to(self._device)
        ends = torch.from_numpy(terminated).to(self._device)
        x, targets = data[:, : self._inputs], data[:, self._inputs :]
        members = options.ensemble_size
        bootstrap = train[random.integers(len(train), size=(members, len(train)))]
        best = np.full(members, np.inf)
        kept = self._flat.vector.detach().clone()
        waiting = epoch = 0
        losses: list[torch.Tensor] = []
        while waiting < options.patience and epoch < options.train_epochs:
            losses = self._epoch(x, targets, ends, random.permuted(bootstrap, axis=1))
            epoch += 1
            errors = self.ensemble.errors(x[valid], targets[valid], ends[valid]).cpu().numpy()
            better = errors < (1.0 - IMPROVEMENT) * best
            best = np.where(better, errors, best)
            self._keep(kept, better)
            waiting = 0 if better.any() else waiting + 1
        with torch.no_grad():
            self._flat.vector.copy_(kept)
        self.elites = np.argsort(best, kind="stable")[: options.num_elites]
        return TrainingReport(
            num_epochs=epoch,
            train_loss=float(torch.stack(losses).mean()),
            validation_error=float(best[self.elites].mean()),
        )

    def _rows(self, transitions: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and outputs side by side, [N, I + O], and terminal states [N]."""
        obs = transitions[Columns.OBS].astype(np.float32)
        rows = np.concatenate(
            [
                obs,
                transitions[Columns.ACTIONS].reshape(len(obs), -1),
                transitions[Columns.NEXT_OBS] - obs,
                transitions[Columns.REWARDS][:, None],
            ],
            axis=1,
        )
        return rows.astype(np.float32), transitions[Columns.TERMINATEDS].astype(np.float32)

    def _epoch(
        self, x: torch.Tensor, targets: torch.Tensor, ends: torch.Tensor, rows: np.ndarray
    ) -> list[torch.Tensor]:
        """Take a step for each minibatch of `rows`, [E, N]; return the losses."""
        size = self.options.batch_size
        index = torch.from_numpy(rows).to(self._device)
        losses = []
        for start in range(0, rows.shape[1], size):
            batch = index[:, start : start + size]
            self._flat.zero_gradients()
            loss = self.ensemble.loss(x[batch], targets[batch], ends[batch]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            self._adam.step()
            losses.append(loss.detach() / len(rows))
        return losses

    def _keep(self, kept: torch.Tensor, better: np.ndarray) -> None:
        """Copy the weights of the improved members into the vector `kept`."""
        chosen = torch.from_numpy(better).to(self._device)
        start = 0
        for parameter in self._flat.parameters:
            stop = start + parameter.numel()
            kept[start:stop].view(parameter.shape)[chosen] = parameter.detach()[chosen]
            start = stop

    # -- predictions

    @torch.no_grad()
    def predict(
        self, obs: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sample next observations [N, O], rewards [N] and terminal states [N].

        Each row is sampled from one of the best members; the rows are assigned to them at random
        and in equal numbers.

        Args:
            obs: Observations [N, O].
            actions: Actions as vectors [N, A].
        """
        count, members = len(obs), len(self.elites)
        share = -(-count // members)
        order = np.resize(self._random.permutation(count), share * members)
        noise = self._random.standard_normal((share * members, obs.shape[1] + 1), np.float32)
        inputs = np.concatenate([obs, actions.reshape(count, -1)], axis=1).astype(np.float32)
        inputs = (inputs - self._mean[: self._inputs]) / self._std[: self._inputs]
        x = torch.zeros(self.options.ensemble_size, share, self._inputs, device=self._device)
        x[self.elites] = torch.from_numpy(inputs[order].reshape(members, share, -1)).to(x)
        mean, log_variance, logit = (part[self.elites] for part in self.ensemble(x))
        std = torch.exp(0.5 * log_variance)
        drawn = (mean + std * torch.from_numpy(noise).to(x).view_as(mean)).cpu().numpy()
        outputs = np.empty((count, drawn.shape[-1]), np.float32)
        outputs[order] = drawn.reshape(share * members, -1)
        outputs = outputs * self._std[self._inputs :] + self._mean[self._inputs :]
        terminated = np.empty(count, bool)
        terminated[order] = (logit > 0.0).cpu().numpy().reshape(-1)
        return obs + outputs[:, :-1], outputs[:, -1], terminated

    # -- state

    def get_state(self) -> StateDict:
        """Return everything that later predictions and trainings depend on, except `random`."""
        moments = self._adam.state.get(self._flat.vector, {})
        return {
            "weights": self._flat.vector.detach().cpu().numpy().copy(),
            "adam": {name: each.cpu().numpy().copy() for name, each in moments.items()},
            "elites": self.elites,
            "mean": self._mean,
            "std": self._std,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned.

        Raises:
            ValueError: The networks have different sizes.
        """
        if state["weights"].shape != tuple(self._flat.vector.shape):
            raise ValueError(
                f"The saved dynamics model has {len(state['weights'])} weights, but this one has "
                f"{len(self._flat.vector)}: restore with the same `dynamics_model`."
            )
        with torch.no_grad():
            self._flat.vector.copy_(torch.from_numpy(state["weights"]))
        for name, each in state["adam"].items():
            tensor = torch.from_numpy(np.array(each)).to(self._device)
            self._adam.state[self._flat.vector][name] = tensor
        self.elites, self._mean, self._std = state["elites"], state["mean"], state["std"]
