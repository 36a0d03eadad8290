"""Batches on their way to a device: each when it is asked for, or one ahead on a CUDA stream of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import torch

from syncline.train.torch.device import move_to, record_stream

T = TypeVar("T")


def moved(batches: Iterator[T], device: torch.device) -> Iterator[T]:
    """The batches on `device`, each copied when it is asked for."""
    return (move_to(batch, device) for batch in batches)


def moved_ahead(batches: Iterator[T], device: torch.device) -> Iterator[T]:
    """The batches on a CUDA `device`; the next is being copied while the current one is computed
    on.
    """
    copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    ahead = _start_copy(batches, device, copies)
    while ahead:
        computation = torch.cuda.current_stream(device)
        computation.wait_stream(copies)
        (batch,) = ahead
        record_stream(batch, computation)
        ahead = _start_copy(batches, device, copies)
        yield batch


def _start_copy(
    batches: Iterator[T], device: torch.device, stream: torch.cuda.Stream
) -> tuple[T, ...]:
    """The next batch, being copied on `stream`; nothing at the end."""
    for batch in batches:
        with torch.cuda.stream(stream):
            return (move_to(batch, device, non_blocking=True),)
    return ()
