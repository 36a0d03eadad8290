"""`prepare_trainer`: a `transformers.Trainer` that reads datasets of `syncline.data`, with memory
snapshots.

`get_dataset_shard(...).iter_torch_batches(...)` yields collated batches of this rank, on the
device. The `Trainer`'s loaders would collate and shard them again, so they are replaced for such
datasets. Loaders of other datasets stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from syncline.data.iterate.batching import BatchIterable
from syncline.train.huggingface.transformers.snapshots import SnapshotTrainer, warn_if_not_covered


def prepare_trainer(trainer: Any) -> Any:
    """Let a `transformers.Trainer` read datasets from `iter_torch_batches`.

    These have no length, so `TrainingArguments(max_steps=...)` must limit the training. After a
    restart the dataset resumes at the checkpoint's position. `ignore_data_skip` is therefore set,
    otherwise the `Trainer` would skip the consumed batches again.

    With `RunConfig(snapshot=SnapshotConfig())`, a memory snapshot is taken after each optimizer
    step, and `trainer.train` starts from it in the next attempt.

    Returns:
        `trainer` itself, with its `get_..._dataloader` methods overridden.
    """
    base = type(trainer)
    if issubclass(base, SnapshotTrainer):
        return trainer

    class ShardTrainer(SnapshotTrainer, base):  # type: ignore[misc, valid-type]
        """The program's Trainer with loaders for `syncline.data`."""

        def get_train_dataloader(self) -> DataLoader[object]:
            if isinstance(self.train_dataset, BatchIterable):
                return shard_loader(self.train_dataset)
            return super().get_train_dataloader()  # type: ignore[no-any-return]

        def get_eval_dataloader(self, eval_dataset: object = None) -> DataLoader[object]:
            chosen = self.eval_dataset if eval_dataset is None else eval_dataset
            chosen = self.eval_dataset[chosen] if isinstance(chosen, str) else chosen
            if isinstance(chosen, BatchIterable):
                return shard_loader(chosen)
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[no-any-return]

        def get_test_dataloader(self, test_dataset: object) -> DataLoader[object]:
            if isinstance(test_dataset, BatchIterable):
                return shard_loader(test_dataset)
            return super().get_test_dataloader(test_dataset)  # type: ignore[no-any-return]

    ShardTrainer.__name__, ShardTrainer.__qualname__ = base.__name__, base.__qualname__
    trainer.__class__ = ShardTrainer
    if isinstance(trainer.train_dataset, BatchIterable):
        trainer.args.ignore_data_skip = True
    warn_if_not_covered(trainer)
    return trainer


def shard_loader(batches: BatchIterable[Any, Any]) -> DataLoader[object]:
    """Return a loader that yields the batches of `iter_torch_batches` unchanged."""
    return DataLoader(BatchDataset(batches), batch_size=None)


class BatchDataset(IterableDataset[object]):
    """Batches as a dataset of torch."""

    def __init__(self, batches: BatchIterable[Any, Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[object]:
        return iter(self.batches)
