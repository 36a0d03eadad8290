"""How the streams of an `IterableDataset` are read: of any, of Hugging Face `datasets`, and of
WebDataset.

A stream is read in place of the rank and the loader process that it was made for. For the two
libraries, any rank can read the stream of any other. The libraries are recognized by their modules
and not imported.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from torch.utils.data import get_worker_info
from torch.utils.data._utils import worker as torch_worker

from syncline import settings
from syncline.train.torch.stream_parts import Sharing, StreamPart

_RANK, _WORLD_SIZE = "RANK", "WORLD_SIZE"
_NODE_SPLITTERS = ("split_by_node", "single_node_only")


class StreamLibrary:
    """Streams of any `IterableDataset`: each rank reads its own."""

    reads_environment = False
    """True if the library reads the rank from the environment."""

    def sharing(self, dataset: Any) -> Sharing:
        """Return how the ranks share the samples."""
        return "fixed"

    def shard(self, dataset: Any, rank: int, world_size: int) -> tuple[int, int]:
        """Return for which rank of how many the dataset yields samples."""
        return rank, world_size

    def start(self, dataset: Any, part: StreamPart, state: object) -> tuple[Any, Any]:
        """Return the dataset to iterate, at its beginning or at a `state` of it, and the facts on
        its order (see `StreamPart.order`).
        """
        if state is not None:
            dataset.load_state_dict(state)
        return dataset, None

    def state(self, dataset: Any) -> object:
        """Return the state of a dataset in the middle of a pass; None if it has none."""
        return dataset.state_dict() if _is_stateful(dataset) else None


class HuggingFaceStreams(StreamLibrary):
    """Streams of `datasets.IterableDataset`.

    Its state does not have the contents of shuffle buffers, so with these the consumed samples are
    read again and dropped.
    """

    def sharing(self, dataset: Any) -> Sharing:
        return "whole" if dataset._distributed is None else "split"

    def shard(self, dataset: Any, rank: int, world_size: int) -> tuple[int, int]:
        split = dataset._distributed
        return (0, 1) if split is None else (split.rank, split.world_size)

    def start(self, dataset: Any, part: StreamPart, state: object) -> tuple[Any, Any]:
        # A copy, since the dataset would keep the state for later passes. `copy.copy` of a dataset
        # shares all attributes with it.
        attributes = dict(vars(dataset))
        dataset = object.__new__(type(dataset))
        dataset.__dict__ = attributes
        if dataset._distributed is not None:
            dataset._distributed = replace(
                dataset._distributed, rank=part.rank, world_size=part.world_size
            )
        if part.order is not None:
            # A tensor that the loader's processes share, so a copy of it is set.
            dataset._epoch = copy.deepcopy(dataset._epoch).fill_(part.order)
        if state is not None:
            dataset.load_state_dict(state)
        return dataset, int(dataset._epoch)

    def state(self, dataset: Any) -> object:
        return None if _has_buffer(dataset._ex_iterable) else dataset.state_dict()


class WebDatasetStreams(StreamLibrary):
    """Streams of pipelines of WebDataset, which have no state. Shuffles without a seed get one, so
    that the consumed samples can be read again and dropped.
    """

    reads_environment = True

    def sharing(self, dataset: Any) -> Sharing:
        return "split" if any(map(_splits_by_node, dataset.pipeline)) else "whole"

    def start(self, dataset: Any, part: StreamPart, state: object) -> tuple[Any, Any]:
        dataset = copy.copy(dataset)
        shuffles = [each for each in dataset.pipeline if _is_shuffle(each)]
        order = part.order or [
            _shuffle_seed(each, part, number) for number, each in enumerate(shuffles)
        ]
        seeds = iter(order)
        dataset.pipeline = [
            _seeded(each, next(seeds)) if _is_shuffle(each) else each for each in dataset.pipeline
        ]
        return dataset, order

    def state(self, dataset: Any) -> object:
        return None


def library_of(dataset: object) -> StreamLibrary:
    """Return how the streams of a dataset are read."""
    modules = {kind.__module__ for kind in type(dataset).__mro__}
    if "datasets.iterable_dataset" in modules:
        return HuggingFaceStreams()
    if "webdataset.pipeline" in modules:
        return WebDatasetStreams()
    return StreamLibrary()


@contextmanager
def in_place_of(part: StreamPart) -> Iterator[None]:
    """Run a block in place of the rank and the loader process that a stream was made for."""
    names = {_RANK: str(part.rank), _WORLD_SIZE: str(part.world_size)}
    before = {name: settings.environment(name) for name in names}
    info = torch_worker._worker_info
    os.environ.update(names)
    torch_worker._worker_info = _worker_info(part)
    try:
        yield
    finally:
        torch_worker._worker_info = info
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def is_made_here(part: StreamPart, library: StreamLibrary) -> bool:
    """Return True if this loader process is the one that a stream was made for, as far as its
    library can tell.
    """
    info = get_worker_info()
    worker, workers = (0, 0) if info is None else (info.id, info.num_workers)
    if not library.reads_environment:
        return (part.worker, part.workers) == (worker, workers)
    place = (str(part.rank), str(part.world_size), part.worker, part.workers)
    return place == (
        settings.environment(_RANK),
        settings.environment(_WORLD_SIZE),
        worker,
        workers,
    )


def _worker_info(part: StreamPart) -> Any:
    if not part.workers:
        return None
    info: Any = get_worker_info()
    dataset: Any = None if info is None else info.dataset
    return torch_worker.WorkerInfo(
        id=part.worker,
        num_workers=part.workers,
        seed=part.seed + part.worker if info is None else info.seed,
        dataset=dataset,
    )


def _is_stateful(dataset: object) -> bool:
    return all(callable(getattr(dataset, name, None)) for name in ("state_dict", "load_state_dict"))


def _has_buffer(examples: Any) -> bool:
    """Return True if an iterable of `datasets` shuffles with a buffer, at any depth."""
    if type(examples).__name__.startswith("BufferShuffled"):
        return True
    inner: Sequence[Any] = getattr(examples, "ex_iterables", None) or [
        getattr(examples, "ex_iterable", None)
    ]
    return any(_has_buffer(each) for each in inner if each is not None)


def _splits_by_node(stage: Any) -> bool:
    function = getattr(stage, "f", stage)  # of a stage with arguments
    return getattr(function, "__name__", "") in _NODE_SPLITTERS


def _is_shuffle(stage: Any) -> bool:
    """Return True for the stages `shuffle`, unless the program gave it a generator, and
    `detshuffle` of WebDataset.
    """
    if type(stage).__name__ == "detshuffle":
        return True
    called = getattr(getattr(stage, "f", None), "__name__", "")
    return called == "_shuffle" and stage.kw.get("rng") is None


def _shuffle_seed(stage: Any, part: StreamPart, number: int) -> int:
    """Return the seed of a shuffle, or the epoch of a `detshuffle`."""
    if type(stage).__name__ == "detshuffle":
        return int(stage.epoch)
    given = stage.kw.get("seed")
    if given is not None:
        return int(given)
    key = repr((part.seed, part.rank, part.worker, number)).encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


def _seeded(stage: Any, seed: int) -> Any:
    """Return a copy of a shuffle with a seed. A `detshuffle` counts its passes itself, so the stage
    of the program stays in the pipeline.
    """
    if type(stage).__name__ == "detshuffle":
        stage.epoch = seed
        return stage
    stage = copy.copy(stage)
    stage.kw = {**stage.kw, "seed": None, "rng": random.Random(seed)}
    return stage
