"""CPU tensors as pickle-5 buffers, without importing torch: a tensor at hand means that torch is
loaded.

Covered: dense CPU `torch.Tensor` and `torch.nn.Parameter` of every element type that can be viewed
as bytes. Everything else (CUDA, sparse, quantized, subclasses, tensors with attributes or hooks) is
left to torch's own `__reduce_ex__`. Tensors that share storage arrive as separate copies.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from typing import Any

# Below this size a received tensor gets memory of its own, so that writing to it cannot reach the
# frame it came in. Above it lies in the object store, whose mappings are copy-on-write (see
# `embedded/segments.py`).
ALIAS_BYTES = 100_000


def reduce(tensor: Any) -> Any:
    """The reduction of `tensor`, or `NotImplemented` where torch's own pickling must do it."""
    torch: Any = sys.modules["torch"]
    is_parameter = type(tensor) is torch.nn.Parameter
    if not is_parameter and type(tensor) is not torch.Tensor:
        return NotImplemented
    if (
        tensor.device.type != "cpu"
        or tensor.layout != torch.strided
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor.__dict__
        or tensor._backward_hooks
        or tensor.numel() == 0
    ):
        return NotImplemented
    dense = tensor.detach()
    if not dense.is_contiguous() and not (
        dense.dim() == 4 and dense.is_contiguous(memory_format=torch.channels_last)
    ):
        dense = dense.contiguous()
    try:
        flat = dense.as_strided((dense.numel(),), (1,)).view(torch.uint8).numpy()
    except (
        RuntimeError,
        TypeError,
    ):  # no storage (meta, fake, functional tensors), packed element types, or no numpy
        return NotImplemented
    state = (
        pickle.PickleBuffer(flat),
        dense.dtype,
        tuple(dense.shape),
        dense.stride(),
        tensor.requires_grad,
        is_parameter,
    )
    return _rebuild, state


def _rebuild(
    buffer: Any,
    dtype: Any,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    is_parameter: bool,
) -> Any:
    torch: Any = sys.modules["torch"]  # unpickling `dtype` has imported it
    view = memoryview(buffer)
    if view.nbytes < ALIAS_BYTES:
        view = memoryview(bytearray(view))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        tensor = torch.frombuffer(view, dtype=dtype).as_strided(shape, stride)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)
