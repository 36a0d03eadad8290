"""Batches on their way to a device; CUDA's streams are fakes here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from syncline.train.torch.device import moved, moved_ahead, record_stream

META = torch.device("meta")


def test_batches_are_copied_when_they_are_asked_for() -> None:
    asked: list[int] = []

    def batches() -> Iterator[torch.Tensor]:
        for index in range(3):
            asked.append(index)
            yield torch.tensor([index])

    assert [(batch.device, len(asked)) for batch in moved(batches(), META)] == [
        (META, 1),
        (META, 2),
        (META, 3),
    ]


class FakeStream:
    """Stands for a CUDA stream; remembers which streams it waited for."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.waited: list[FakeStream] = []

    def wait_stream(self, other: FakeStream) -> None:
        self.waited.append(other)


def test_one_batch_is_copied_ahead_on_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    computation, loaded, copied_on, copies = FakeStream(), [], [], []

    def batches() -> Iterator[torch.Tensor]:
        for index in range(3):
            loaded.append(index)
            yield torch.tensor([index])

    def stream(chosen: FakeStream) -> Any:
        copied_on.append(chosen)
        return nullcontext()

    monkeypatch.setattr(
        torch.cuda, "Stream", lambda device: copies.append(FakeStream()) or copies[-1]
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computation)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    loaded_at_each_step = [
        len(loaded) for batch in moved_ahead(batches(), META) if batch.device == META
    ]
    assert loaded_at_each_step == [2, 3, 3]
    assert computation.waited == copied_on == copies * 3


def test_streams_are_told_of_every_tensor_that_they_read() -> None:
    class Recorded:
        def __init__(self) -> None:
            self.streams: list[object] = []

        def record_stream(self, stream: object) -> None:
            self.streams.append(stream)

    class Opaque:
        def __init__(self) -> None:
            self.inside = Recorded()

        def to(self, device: torch.device) -> Opaque:
            return self

    items, opaque, stream = [Recorded() for _ in range(3)], Opaque(), FakeStream()
    record_stream(
        {"a": items[0], "b": (items[1], [items[2], "text"]), "c": opaque, "d": torch.ones(1)},
        stream,
    )  # type: ignore[arg-type]
    assert [item.streams for item in [*items, opaque.inside]] == [[stream]] * 4
