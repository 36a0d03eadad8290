"""Files of `torch.save`."""

from __future__ import annotations

import torch

from syncline.train.snapshots.torch_tensors import LocalTensor


def write(state: object, path: str) -> None:
    """Write a state of plain values, arrays and tensors, for `torch.load`.

    The parts of sharded tensors are written as plain tensors.
    """
    torch.save(_plain(state), path)


def _plain(value: object) -> object:
    if isinstance(value, LocalTensor):
        return value.tensor
    if type(value) is dict:
        return {key: _plain(each) for key, each in value.items()}
    if type(value) is list:
        return [_plain(each) for each in value]
    if type(value) is tuple:
        return tuple(map(_plain, value))
    return value
