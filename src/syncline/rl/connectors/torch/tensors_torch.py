"""Default connectors that convert arrays to tensors and back."""

from __future__ import annotations

import torch

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree
from syncline.rl.connectors.connector import Batch
from syncline.rl.connectors.to_module.items import DefaultConnector
from syncline.rl.modules.torch.torch_acting import to_numpy, to_tensor
from syncline.rl.value_types import Device, Space


class NumpyToTensor(DefaultConnector):
    """Converts the arrays of a batch to tensors; infos remain lists.

    Args:
        as_learner_connector: Has no effect.
        pin_memory: Put tensors into pinned memory for faster copies to a GPU.
        device: Device of the tensors; None for the CPU.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        as_learner_connector: bool = False,
        pin_memory: bool = False,
        device: Device = None,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._pin = pin_memory
        self._device = torch.device("cpu" if device is None else device)

    def __call__(self, *, batch: Batch, **kwargs: object) -> Batch:
        """Convert all columns, including those under module ids."""
        return {name: self._tensors(name, column) for name, column in batch.items()}

    def _tensors(self, name: str, column: object) -> Tree:
        if name == Columns.INFOS:
            return column
        if isinstance(column, dict):
            return {key: self._tensors(key, each) for key, each in column.items()}
        return map_tree(self._tensor, column)

    def _tensor(self, leaf: Tree) -> Tree:
        if isinstance(leaf, torch.Tensor):
            return leaf.to(self._device)
        if self._pin and torch.cuda.is_available():
            return to_tensor(leaf, torch.device("cpu")).pin_memory().to(self._device)
        return to_tensor(leaf, self._device)


class TensorToNumpy(DefaultConnector):
    """Converts the tensors of a batch to arrays."""

    def __call__(self, *, batch: Batch, **kwargs: object) -> Batch:
        """Convert all columns."""
        made: Batch = map_tree(_array, batch)
        return made


def _array(leaf: Tree) -> Tree:
    return to_numpy(leaf) if isinstance(leaf, torch.Tensor) else leaf
