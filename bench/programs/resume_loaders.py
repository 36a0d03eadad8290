"""Loaders of `loader_resume`: how each is made, and how its library resumes it.

A loader yields the ids of its batches. With `library=True` it is resumed as the library's
documentation says; otherwise syncline resumes it.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from syncline import data, train
from syncline.train.torch import prepare_data_loader

ROWS, BATCH, SHARDS, PROCESSES = 144, 4, 8, 2


class Loader:
    """A loader of one rank.

    Args:
        library: Resume as the library does.
        folder: Input of the loader.
        rank: This rank.
        size: Number of ranks.
    """

    requires: ClassVar[str] = "torch"
    """Module of the library."""

    def __init__(self, *, library: bool, folder: Path, rank: int, size: int) -> None:
        self.library, self.folder, self.rank, self.size = library, folder, rank, size
        self.loader: Any = self.make()
        if not library:
            self.loader = prepare_data_loader(self.loader)

    @classmethod
    def is_installed(cls) -> bool:
        return find_spec(cls.requires) is not None

    @classmethod
    def write(cls, folder: Path) -> None:
        """Write the input."""

    @classmethod
    def dataset(cls, folder: Path) -> data.Dataset | None:
        """Return the dataset that the trainer reads with syncline; None if there is none."""
        return None

    def make(self) -> Any:
        """Return the loader of the program."""
        raise NotImplementedError

    def batches(self, epoch: int) -> Iterator[list[int]]:
        """Yield the batches of an epoch, or those that remain of it after `load`."""
        return (batch.tolist() for batch in self.loader)

    def save(self, folder: Path, step: int) -> None:
        """Save the state of the library."""

    def load(self, folder: Path, epoch: int, step: int) -> None:
        """Load the state of the library, after `step` steps of the epoch."""

    def _path(self, folder: Path) -> Path:
        return folder / f"loader-{self.rank}.pt"


class Items(Dataset[int]):
    """The numbers from 0."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> int:
        return index


class TorchLoader(Loader):
    """A `DataLoader`, which has no resume: the epoch restarts."""

    processes = 0

    def make(self) -> Any:
        if not self.library:
            return DataLoader(Items(), batch_size=BATCH, shuffle=True, num_workers=self.processes)
        sampler: Any = DistributedSampler(range(ROWS))
        return DataLoader(Items(), batch_size=BATCH, sampler=sampler, num_workers=self.processes)

    def batches(self, epoch: int) -> Iterator[list[int]]:
        if self.library:
            self.loader.sampler.set_epoch(epoch)
        return super().batches(epoch)


class TorchLoaderProcesses(TorchLoader):
    processes = PROCESSES


class GeneratorLoader(TorchLoader):
    """A `DataLoader` with a generator of the program."""

    def make(self) -> Any:
        if self.library:
            return super().make()
        generator = torch.Generator().manual_seed(5)
        return DataLoader(Items(), batch_size=BATCH, shuffle=True, generator=generator)


class SamplerLoader(TorchLoader):
    """A `DataLoader` with a `DistributedSampler` of the program. Programs that resume within an
    epoch skip the batches before.
    """

    def __init__(self, **options: Any) -> None:
        self.skipped = 0
        super().__init__(**options)

    def make(self) -> Any:
        sampler: Any = DistributedSampler(range(ROWS))
        return DataLoader(Items(), batch_size=BATCH, sampler=sampler)

    def batches(self, epoch: int) -> Iterator[list[int]]:
        skipped, self.skipped = self.skipped, 0
        return islice(super().batches(epoch), skipped, None)

    def load(self, folder: Path, epoch: int, step: int) -> None:
        if self.library:
            self.skipped = step


class StatefulLoader(TorchLoader):
    """A `StatefulDataLoader` of torchdata."""

    requires = "torchdata.stateful_dataloader"
    processes = PROCESSES

    @classmethod
    def is_installed(cls) -> bool:
        return find_spec("torchdata") is not None

    def make(self) -> Any:
        kind = import_module(self.requires).StatefulDataLoader
        options: dict[str, Any] = {"batch_size": BATCH, "num_workers": self.processes}
        if self.library:
            return kind(Items(), sampler=DistributedSampler(range(ROWS)), **options)
        return kind(Items(), shuffle=True, **options)

    def save(self, folder: Path, step: int) -> None:
        if self.library:
            torch.save(self.loader.state_dict(), self._path(folder))

    def load(self, folder: Path, epoch: int, step: int) -> None:
        # The state at the end of an epoch would make the next one empty.
        if self.library and step:
            self.loader.load_state_dict(torch.load(self._path(folder), weights_only=False))


class AccelerateLoader(Loader):
    """A loader that `accelerator.prepare` has returned."""

    requires = "accelerate"

    def __init__(self, **options: Any) -> None:
        self.skipped = 0
        self.accelerator = import_module("accelerate").Accelerator()
        super().__init__(**options)

    def make(self) -> Any:
        return self.accelerator.prepare(DataLoader(Items(), batch_size=BATCH, shuffle=True))

    def batches(self, epoch: int) -> Iterator[list[int]]:
        skipped, self.skipped = self.skipped, 0
        if not skipped:
            return super().batches(epoch)
        return (
            batch.tolist() for batch in self.accelerator.skip_first_batches(self.loader, skipped)
        )

    def save(self, folder: Path, step: int) -> None:
        if self.library:
            self.accelerator.save_state(str(folder / "accelerate"))

    def load(self, folder: Path, epoch: int, step: int) -> None:
        if self.library:
            self.accelerator.load_state(str(folder / "accelerate"))
            self.skipped = step


def examples(shards: list[int]) -> Iterator[dict[str, int]]:
    """Yield the rows of some shards."""
    for shard in shards:
        for index in range(shard, ROWS, SHARDS):
            yield {"id": index}


class HuggingFaceMap(Loader):
    """A `datasets.Dataset`. It has no resume."""

    requires = "datasets"

    def make(self) -> Any:
        rows = import_module("datasets").Dataset.from_dict({"id": list(range(ROWS))})
        options: dict[str, Any] = (
            {"sampler": DistributedSampler(range(ROWS))} if self.library else {"shuffle": True}
        )
        return DataLoader(rows.with_format("torch"), batch_size=BATCH, **options)

    def batches(self, epoch: int) -> Iterator[list[int]]:
        if self.library:
            self.loader.sampler.set_epoch(epoch)
        return (batch["id"].tolist() for batch in self.loader)


class HuggingFaceStream(Loader):
    """A `datasets.IterableDataset`."""

    requires = "datasets"
    processes = 0
    buffer = 0

    def make(self) -> Any:
        datasets = import_module("datasets")
        rows = datasets.IterableDataset.from_generator(
            examples, gen_kwargs={"shards": list(range(SHARDS))}
        )
        if self.buffer:
            rows = rows.shuffle(seed=3, buffer_size=self.buffer)
        self.rows = import_module("datasets.distributed").split_dataset_by_node(
            rows, self.rank, self.size
        )
        kind: Any = DataLoader
        if self.library and self.processes:
            kind = import_module("torchdata.stateful_dataloader").StatefulDataLoader
        return kind(self.rows, batch_size=BATCH, num_workers=self.processes)

    def batches(self, epoch: int) -> Iterator[list[int]]:
        self.rows.set_epoch(epoch)
        return (batch["id"].tolist() for batch in self.loader)

    def save(self, folder: Path, step: int) -> None:
        if self.library and step:
            source = self.loader if self.processes else self.rows
            torch.save(source.state_dict(), self._path(folder))

    def load(self, folder: Path, epoch: int, step: int) -> None:
        if self.library and step:
            self.rows.set_epoch(epoch)
            source = self.loader if self.processes else self.rows
            source.load_state_dict(torch.load(self._path(folder), weights_only=False))


class HuggingFaceProcesses(HuggingFaceStream):
    processes = PROCESSES


class HuggingFaceBuffer(HuggingFaceStream):
    buffer = 16


class WebDatasetLoader(Loader):
    """A WebDataset with shuffled shards and a shuffle buffer. It has no resume."""

    requires = "webdataset"
    processes = PROCESSES

    @classmethod
    def write(cls, folder: Path) -> None:
        for shard in range(SHARDS):
            with tarfile.open(folder / f"{shard}.tar", "w") as archive:
                for index in range(shard, ROWS, SHARDS):
                    content = str(index).encode()
                    member = tarfile.TarInfo(f"{index:06}.id")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))

    def make(self) -> Any:
        wds = import_module("webdataset")
        rows = wds.WebDataset(
            sorted(map(str, self.folder.glob("*.tar"))),
            shardshuffle=SHARDS,
            nodesplitter=wds.split_by_node,
            empty_check=False,
        )
        rows = rows.shuffle(16).map(lambda row: int(row["id"]))
        return DataLoader(rows, batch_size=BATCH, num_workers=self.processes)


class ShardLoader(Loader):
    """Shards that syncline reads as a dataset, with the name of the loader."""

    name: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        if options["library"]:
            super().__init__(**options)
            return
        self.library = False
        self.shard = train.get_dataset_shard(self.name)

    @classmethod
    def write(cls, folder: Path) -> None:
        if cls.is_installed():
            without_torchvision()
            cls.write_shards(folder)

    @classmethod
    def write_shards(cls, folder: Path) -> None:
        """Write the input with the library."""
        raise NotImplementedError

    def batches(self, epoch: int) -> Iterator[list[int]]:
        if self.library:
            return (batch["id"].tolist() for batch in self.loader)
        return (batch["id"].tolist() for batch in self.shard.iter_batches(batch_size=BATCH))

    def save(self, folder: Path, step: int) -> None:
        if self.library and step:
            torch.save(self.loader.state_dict(), self._path(folder))

    def load(self, folder: Path, epoch: int, step: int) -> None:
        if self.library and step:
            self.loader.load_state_dict(torch.load(self._path(folder), weights_only=False))


class MDSLoader(ShardLoader):
    """MDS shards, read by `StreamingDataset` or `read_mds`."""

    name = "MosaicML MDS"
    requires = "streaming"

    @classmethod
    def write_shards(cls, folder: Path) -> None:
        writer = import_module("streaming").MDSWriter
        with writer(out=str(folder / "mds"), columns={"id": "int"}, size_limit=600) as out:
            for index in range(ROWS):
                out.write({"id": index})

    @classmethod
    def dataset(cls, folder: Path) -> data.Dataset | None:
        return data.read_mds(str(folder / "mds"), shuffle="files").random_shuffle()

    def make(self) -> Any:
        without_torchvision()
        streaming = import_module("streaming")
        rows = streaming.StreamingDataset(
            local=str(self.folder / "mds"), shuffle=True, batch_size=BATCH
        )
        return streaming.StreamingDataLoader(rows, batch_size=BATCH)


class LitDataLoader(ShardLoader):
    """LitData chunks, read by `StreamingDataset` or `read_litdata`."""

    name = "LitData"
    requires = "litdata"

    @classmethod
    def write_shards(cls, folder: Path) -> None:
        writer = import_module("litdata.streaming.writer").BinaryWriter(
            str(folder / "litdata"), chunk_size=ROWS // SHARDS
        )
        for index in range(ROWS):
            writer.add_item(index, {"id": index})
        writer.done()
        writer.merge()

    @classmethod
    def dataset(cls, folder: Path) -> data.Dataset | None:
        return data.read_litdata(str(folder / "litdata"), shuffle="files").random_shuffle()

    def make(self) -> Any:
        litdata = import_module("litdata")
        rows = litdata.StreamingDataset(str(self.folder / "litdata"), shuffle=True)
        return litdata.StreamingDataLoader(rows, batch_size=BATCH)


def import_libraries() -> None:
    """Import the libraries that are installed."""
    without_torchvision()
    for kind in LOADERS.values():
        if kind.is_installed():
            import_module(kind.requires)


def without_torchvision() -> None:
    """Let mosaicml-streaming import an empty torchvision, which its writer and reader of MDS do not
    use. The builds of PyPI do not fit to torch for CPUs.
    """
    if find_spec("torchvision") is not None:
        return
    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        module: Any = ModuleType(f"torchvision{name}")
        module.__spec__ = ModuleSpec(module.__name__, None)
        module.VisionDataset, module.to_tensor = object, None
        sys.modules[module.__name__] = module


LOADERS: dict[str, type[Loader]] = {
    "DataLoader": TorchLoader,
    "DataLoader, loader processes": TorchLoaderProcesses,
    "DataLoader, generator": GeneratorLoader,
    "DataLoader, DistributedSampler": SamplerLoader,
    "torchdata StatefulDataLoader, loader processes": StatefulLoader,
    "Accelerate": AccelerateLoader,
    "Hugging Face Dataset": HuggingFaceMap,
    "Hugging Face IterableDataset": HuggingFaceStream,
    "Hugging Face IterableDataset, loader processes": HuggingFaceProcesses,
    "Hugging Face IterableDataset, shuffle buffer": HuggingFaceBuffer,
    "WebDataset, shuffle buffer, loader processes": WebDatasetLoader,
    MDSLoader.name: MDSLoader,
    LitDataLoader.name: LitDataLoader,
}
