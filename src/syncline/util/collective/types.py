"""Backends, reduce operations and options of collective operations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

unset_timeout_ms = timedelta(milliseconds=-1)


class Backend:
    """Names of backends: `Backend("gloo") == Backend.GLOO == "GLOO"`."""

    NCCL = "NCCL"
    GLOO = "GLOO"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str) -> str:  # type: ignore[misc]  # as in Ray: a text
        upper = name.upper().removeprefix("TORCH_")
        if upper not in (Backend.NCCL, Backend.GLOO):
            raise ValueError(f"The backend {name!r} is unknown: use 'gloo' or 'nccl'.")
        return upper


class ReduceOp(Enum):
    """How values of ranks are combined."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3


@dataclass
class AllReduceOptions:
    """Options of `allreduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BarrierOptions:
    """Options of `barrier`."""

    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceOptions:
    """Options of `reduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class AllGatherOptions:
    """Options of `allgather`."""

    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BroadcastOptions:
    """Options of `broadcast`."""

    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceScatterOptions:
    """Options of `reducescatter`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class SendOptions:
    """Options of `send`."""

    dst_rank: int = 0
    dst_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class RecvOptions:
    """Options of `recv`."""

    src_rank: int = 0
    src_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = unset_timeout_ms
