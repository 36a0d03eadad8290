"""Loaders of other libraries, killed and resumed: no sample is lost or repeated, on the same and on
another number of ranks and of loader processes.

A kill is a set of loaders that is dropped after its checkpoint; processes that are really killed
are in `bench/programs/loader_resume.py`.
"""

from __future__ import annotations

import itertools
import tarfile
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

from tests.train.torch.loader_runs import Augmented, Program, Stream, samples

TOTAL = 48
Maker = Callable[[int, int], DataLoader[Any]]
"""A loader of a rank, of so many ranks."""


def ids(batch: Any) -> list[list[float]]:
    """The ids of a batch in the form of `loader_runs`."""
    values = batch["id"] if isinstance(batch, dict) else batch
    return [[float(value)] for value in values]


class Seen(Program):
    """`Program` whose ranks may take different numbers of steps."""

    def __init__(self, make: Maker, *, world_size: int, saved: Path | None = None) -> None:
        rank = itertools.count()
        super().__init__(
            lambda: make(next(rank), world_size),
            world_size=world_size,
            saved=saved,
            seed=world_size,
        )

    def take(self, passes: list[Any], steps: int | None = None) -> list[int]:
        """The ids of so many steps, or of all."""
        found: list[int] = []
        for _ in itertools.count() if steps is None else range(steps):
            batches = [self.on(r, lambda _, p=p: next(p, None)) for r, p in enumerate(passes)]  # type: ignore[misc]
            if all(batch is None for batch in batches):
                break
            found += [int(row[0]) for each in batches if each is not None for row in ids(each)]
        return found


def read_with_restarts(make: Maker, folder: Path, sizes: list[int], steps: int = 2) -> list[int]:
    """The ids of an epoch that is interrupted after every few steps, each time on the next number
    of ranks.
    """
    seen: list[int] = []
    saved = None
    for number, world_size in enumerate(sizes):
        program = Seen(make, world_size=world_size, saved=saved)
        last = number == len(sizes) - 1
        passes = program.begin()
        seen += program.take(passes, None if last else steps)
        saved = program.save(folder / str(number))
        del passes
    return seen


def assert_each_once(seen: list[int], total: int = TOTAL) -> None:
    assert Counter(seen) == Counter(range(total))


# -- Hugging Face


def hugging_face(workers: int = 0, *, buffer: int = 0, shards: int = 8) -> Maker:
    datasets = pytest.importorskip("datasets")
    split_dataset_by_node = pytest.importorskip("datasets.distributed").split_dataset_by_node

    def examples(parts: list[int]) -> Any:
        for part in parts:
            for index in range(TOTAL // shards):
                yield {"id": part * (TOTAL // shards) + index}

    def make(rank: int, world_size: int) -> DataLoader[Any]:
        dataset = datasets.IterableDataset.from_generator(
            examples, gen_kwargs={"parts": list(range(shards))}
        )
        if buffer:
            dataset = dataset.shuffle(seed=3, buffer_size=buffer)
        dataset = split_dataset_by_node(dataset, rank, world_size)
        dataset.set_epoch(1)
        return DataLoader(dataset, batch_size=2, num_workers=workers, timeout=60 * bool(workers))

    return make


@pytest.mark.parametrize("sizes", [[2, 2, 2], [2, 1, 3, 2], [1, 4, 1]])
@pytest.mark.parametrize("buffer", [0, 5])
def test_hugging_face_streams(buffer: int, sizes: list[int], tmp_path: Path) -> None:
    assert_each_once(read_with_restarts(hugging_face(buffer=buffer), tmp_path, sizes))


@pytest.mark.processes
@pytest.mark.parametrize("buffer", [0, 5])
def test_hugging_face_streams_in_loader_processes(buffer: int, tmp_path: Path) -> None:
    assert_each_once(
        read_with_restarts(hugging_face(2, buffer=buffer), tmp_path, [2, 1, 3, 2], steps=3)
    )


def test_hugging_face_order_is_kept_on_same_ranks(tmp_path: Path) -> None:
    make = hugging_face(buffer=5)
    whole = Seen(make, world_size=2)
    expected = whole.take(whole.begin())
    assert read_with_restarts(make, tmp_path, [2, 2, 2]) == expected


def test_position_without_buffer_is_loaded_instead_of_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read_with_restarts(hugging_face(), tmp_path, [2, 1])
    assert not caplog.records


def test_position_with_buffer_is_read_again_with_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read_with_restarts(hugging_face(buffer=5), tmp_path, [2, 2])
    assert "are read again and dropped" in caplog.text
    assert "shuffle without a buffer" in caplog.text


def test_next_pass_after_resumed_one_is_complete(tmp_path: Path) -> None:
    make = hugging_face()
    first = Seen(make, world_size=2)
    passes = first.begin()
    first.take(passes, 2)
    again = Seen(make, world_size=1, saved=first.save(tmp_path))
    again.take(again.begin())
    assert_each_once(again.take(again.begin()))


def test_map_datasets_of_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")

    def make(rank: int, world_size: int) -> DataLoader[Any]:
        rows = datasets.Dataset.from_dict({"id": list(range(TOTAL))})
        return DataLoader(rows.with_format("torch"), batch_size=2, shuffle=True)

    assert_each_once(read_with_restarts(make, tmp_path, [2, 1, 4, 2]))


# -- WebDataset


def write_shards(folder: Path, shards: int = 8) -> list[str]:
    paths = []
    for shard in range(shards):
        path = folder / f"{shard:04}.tar"
        paths.append(str(path))
        with tarfile.open(path, "w") as archive:
            for index in range(shard, TOTAL, shards):
                content = str(index).encode()
                member = tarfile.TarInfo(f"{index:06}.id")
                member.size = len(content)
                archive.addfile(member, BytesIO(content))
    return paths


def web_dataset(folder: Path, workers: int = 0, *, seed: int | None = None) -> Maker:
    wds = pytest.importorskip("webdataset")
    paths = write_shards(folder)

    def make(rank: int, world_size: int) -> DataLoader[Any]:
        dataset = wds.WebDataset(
            paths, shardshuffle=4, nodesplitter=wds.split_by_node, seed=seed, empty_check=False
        )
        dataset = dataset.shuffle(6, initial=3).map(lambda row: int(row["id"]))
        return DataLoader(dataset, batch_size=2, num_workers=workers, timeout=60 * bool(workers))

    return make


@pytest.mark.parametrize("sizes", [[2, 2, 2], [2, 1, 3, 2]])
@pytest.mark.parametrize("seed", [None, 4])
def test_web_datasets(seed: int | None, sizes: list[int], tmp_path: Path) -> None:
    assert_each_once(read_with_restarts(web_dataset(tmp_path, seed=seed), tmp_path, sizes))


@pytest.mark.processes
def test_web_datasets_in_loader_processes(tmp_path: Path) -> None:
    assert_each_once(read_with_restarts(web_dataset(tmp_path, 2), tmp_path, [2, 1, 3, 2], steps=3))


def test_web_loader_is_prepared_like_its_loader(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    plain = web_dataset(tmp_path)

    def make(rank: int, world_size: int) -> Any:
        return wds.WebLoader(plain(rank, world_size).dataset, batch_size=2)

    assert_each_once(read_with_restarts(make, tmp_path, [2, 1]))
    with pytest.raises(TypeError, match="Move the stages"):
        Seen(lambda rank, size: make(rank, size).shuffle(3), world_size=1)


# -- torchdata


@pytest.mark.parametrize("options", [{"shuffle": True}, {"shuffle": False}])
@pytest.mark.parametrize("sizes", [[2, 2, 2], [2, 1, 4, 2]])
def test_stateful_loaders(options: dict[str, Any], sizes: list[int], tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def make(rank: int, world_size: int) -> Any:
        return stateful.StatefulDataLoader(list(range(TOTAL)), batch_size=2, **options)

    assert_each_once(read_with_restarts(make, tmp_path, sizes))


def test_stateful_loader_keeps_its_methods_for_the_program() -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def make(rank: int, world_size: int) -> Any:
        return stateful.StatefulDataLoader(Augmented(), batch_size=2, shuffle=True)

    first = Program(lambda: make(0, 1))
    passes = first.begin()
    head = first.rest(passes, 3)
    state = first.loaders[0].state_dict()
    again = Program(lambda: make(0, 1), seed=3)
    again.loaders[0].load_state_dict(state)
    assert sorted(samples(head) + samples(again.epoch())) == list(range(23))


# -- Accelerate


def accelerate_loader(rank: int, world_size: int, **options: Any) -> Any:
    """What `accelerator.prepare` returns on a rank."""
    prepare = pytest.importorskip("accelerate.data_loader").prepare_data_loader
    return prepare(
        DataLoader(list(range(TOTAL)), batch_size=2, shuffle=True),
        num_processes=world_size,
        process_index=rank,
        rng_types=None,
        **{"put_on_device": False, **options},
    )


@pytest.mark.parametrize("sizes", [[1, 1, 1], [2, 2, 2], [2, 1, 4, 2]])
def test_loaders_of_accelerate(sizes: list[int], tmp_path: Path) -> None:
    assert_each_once(read_with_restarts(accelerate_loader, tmp_path, sizes))


def test_loader_of_accelerate_stays_its_own() -> None:
    program = Seen(accelerate_loader, world_size=2)
    loader = program.loaders[1]
    assert type(loader).__name__ == "DataLoaderShard"
    assert loader.total_batch_size == 4
    passes = program.begin()
    assert len(program.take(passes, 11)) == 44
    assert not loader.end_of_dataloader
    program.take(passes, 1)
    assert loader.end_of_dataloader
    assert_each_once(program.take(program.begin()))


def test_each_epoch_of_accelerate_has_another_order(tmp_path: Path) -> None:
    program = Seen(accelerate_loader, world_size=2)
    epochs = [program.take(program.begin()) for _ in range(2)]
    passes = program.begin()
    head = program.take(passes, 3)
    saved = program.save(tmp_path)
    tail = program.take(passes)
    again = Seen(accelerate_loader, world_size=2, saved=saved)
    assert again.take(again.begin()) == tail
    assert len({tuple(order) for order in [*epochs, head + tail]}) == 3


def test_checkpoint_with_last_batch_of_accelerate_leaves_no_batch(tmp_path: Path) -> None:
    """Accelerate has then fetched the end, but the program is still in the loop of the epoch."""
    program = Seen(accelerate_loader, world_size=2)
    passes = program.begin()
    program.take(passes, 12)
    again = Seen(accelerate_loader, world_size=2, saved=program.save(tmp_path / "in loop"))
    assert again.take(again.begin()) == []
    second = again.take(again.begin())
    assert_each_once(second)
    assert program.take(passes) == []
    assert program.take(program.begin()) == second
    again = Seen(accelerate_loader, world_size=2, saved=program.save(tmp_path / "after loop"))
    assert_each_once(again.take(again.begin()))


def test_loader_in_which_one_rank_reads_for_all_is_refused() -> None:
    with pytest.raises(TypeError, match="dispatch_batches=False"):
        Seen(
            lambda rank, size: accelerate_loader(
                rank, size, dispatch_batches=True, put_on_device=True, device="cpu"
            ),
            world_size=2,
        )


# -- any stream


@pytest.mark.processes
def test_stream_whose_loader_processes_are_prepared_by_the_program(tmp_path: Path) -> None:
    """`worker_init_fn` gives each process its samples, as torch's documentation shows."""

    class Numbers(IterableDataset[int]):
        first, last = 0, TOTAL

        def __iter__(self) -> Any:
            return iter(range(self.first, self.last))

    def prepare(worker: int) -> None:
        from torch.utils.data import get_worker_info

        dataset: Any = get_worker_info().dataset
        assert type(dataset).__name__ == "Numbers"
        dataset.first, dataset.last = worker * TOTAL // 2, (worker + 1) * TOTAL // 2

    def make(rank: int, world_size: int) -> DataLoader[Any]:
        return DataLoader(
            Numbers(), batch_size=2, num_workers=2, worker_init_fn=prepare, timeout=60
        )

    assert_each_once(read_with_restarts(make, tmp_path, [1, 1, 1], steps=3))


def test_stream_that_has_become_shorter_is_an_error(tmp_path: Path) -> None:
    first = Program(lambda: DataLoader(Stream(11), batch_size=2))
    passes = first.begin()
    first.rest(passes, 3)
    saved = first.save(tmp_path)
    again = Program(lambda: DataLoader(Stream(4), batch_size=2), saved=saved)
    with pytest.raises(RuntimeError, match="only 4 samples .* but 6 were read"):
        again.begin()
