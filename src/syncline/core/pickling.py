"""The pickler under `serialization`: cloudpickle's semantics, pickle-5 buffers, CPU tensors.

It pickles by value or by reference as cloudpickle decides, handles torch tensors if torch is
loaded, and collects the ids of object references. `serialization` defines the message format,
`serializability` explains errors.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import cloudpickle

PROTOCOL = 5

ALIAS_BYTES = 100_000
"""Minimum size of a received tensor that aliases its buffer.

Smaller tensors are copied, so that writing to them cannot reach the frame that they came in. Larger
buffers are in the object store, whose mappings are copy-on-write (see `embedded/segments.py`).
"""

main_module: types.ModuleType | None = None
"""In a worker, `__main__`: classes and functions of the user's script are entered there as they
arrive, so that other picklers and child processes find them by name. None in other processes.
"""

serializers: dict[type, tuple[Callable[[Any], object], Callable[[Any], object]]] = {}
"""Serializer and deserializer of the classes that `util.register_serializer` registered here."""

Torch = Any
"""The module `torch`, which core does not import."""
Tensor = Any
BufferCallback = Callable[[pickle.PickleBuffer], object]


class _Collectors(threading.local):
    """Stack of reference collectors of this thread: a `__reduce__` may pack another value."""

    def __init__(self) -> None:
        self.stack: list[dict[int, None]] = []


collectors = _Collectors()


def note_ref(ref_id: int) -> None:
    """Record in the current pack of this thread that the value contains the reference `ref_id`.

    Does nothing outside a pack, as in a plain `pickle.dumps` of a reference.
    """
    if collectors.stack:
        collectors.stack[-1][ref_id] = None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no type hints
    """cloudpickle's pickler; torch tensors take precedence."""

    def reducer_override(self, obj: object) -> object:
        registered = serializers.get(type(obj)) if serializers else None
        if registered is not None:
            serialize, deserialize = registered
            return deserialize, (serialize(obj),)
        torch = sys.modules.get("torch")
        if torch is not None and issubclass(type(obj), getattr(torch, "Tensor", ())):
            return _reduce_tensor(obj)
        if isinstance(obj, type | types.FunctionType) and _is_found_by_name(obj):
            return NotImplemented
        reduced = super().reducer_override(obj)
        if is_top_level_of_main(obj) and isinstance(reduced, tuple) and len(reduced) == 6:
            make, arguments, state, items, pairs, set_state = reduced
            return make, arguments, (set_state, state), items, pairs, _restore_in_main
        return reduced


def _is_found_by_name(obj: type | types.FunctionType) -> bool:
    """Return True if `obj` can be pickled by reference, at a tenth of cloudpickle's own cost."""
    module = sys.modules.get(obj.__module__) if obj.__module__ != "__main__" else None
    return (
        module is not None
        and vars(module).get(obj.__qualname__) is obj
        and not cloudpickle.list_registry_pickle_by_value()
    )


def is_top_level_of_main(obj: object) -> bool:
    """Return True for a class or function at the top level of the user's script."""
    return (
        isinstance(obj, type | types.FunctionType)
        and obj.__module__ == "__main__"
        and obj.__qualname__.isidentifier()
    )


def _restore_in_main(obj: Any, reduced: tuple[Callable[[Any, Any], object], object]) -> None:
    """Set the state of a class or function of the user's script, and enter it in `__main__`."""
    set_state, state = reduced
    set_state(obj, state)
    if main_module is not None:
        setattr(main_module, obj.__name__, obj)


def dumps(value: object, buffer_callback: BufferCallback | None) -> tuple[bytes, tuple[int, ...]]:
    """Pickle `value`; return the stream and the unique ids of the references inside, in order."""
    refs: dict[int, None] = {}
    collectors.stack.append(refs)
    try:
        with io.BytesIO() as stream:
            _Pickler(stream, protocol=PROTOCOL, buffer_callback=buffer_callback).dump(value)
            return stream.getvalue(), tuple(refs)
    finally:
        collectors.stack.pop()


def can_pickle(value: object) -> Exception | None:
    """Return the exception that pickling `value` raises, or None. Large buffers are not copied."""
    try:
        dumps(value, lambda buffer: None)
    except Exception as error:
        return error
    return None


# -- torch tensors as pickle-5 buffers, without importing torch


def _reduce_tensor(tensor: Tensor) -> object:
    """Return the reduction of a dense CPU tensor or Parameter, else `NotImplemented`.

    torch's own `__reduce_ex__` then handles CUDA, sparse and quantized tensors, subclasses, and
    tensors with attributes or hooks. Tensors that share storage arrive as separate copies.
    """
    torch: Torch = sys.modules["torch"]
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
    except (RuntimeError, TypeError):  # no storage (meta, fake), packed element types, or no numpy
        return NotImplemented
    state = (
        pickle.PickleBuffer(flat),
        dense.dtype,
        tuple(dense.shape),
        dense.stride(),
        tensor.requires_grad,
        is_parameter,
    )
    return _rebuild_tensor, state


def _rebuild_tensor(
    buffer: pickle.PickleBuffer | bytes,
    dtype: object,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    is_parameter: bool,
) -> Tensor:
    torch: Torch = sys.modules["torch"]  # unpickling `dtype` has imported it
    view = memoryview(buffer)
    if view.nbytes < ALIAS_BYTES:
        view = memoryview(bytearray(view))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        tensor = torch.frombuffer(view, dtype=dtype).as_strided(shape, stride)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)
