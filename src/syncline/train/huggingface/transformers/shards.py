"""`prepare_trainer`: a `transformers.Trainer` that reads its batches from datasets of
`syncline.data`.

What `get_dataset_shard(...).iter_torch_batches(...)` returns yields this rank's batches, made and
on the device. The `Trainer`'s own loaders would collate and share them out once more, so for such
datasets they are replaced; for all others they stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from syncline.data.iterate.batching import BatchIterable


def prepare_trainer(trainer: Any) -> Any:
    """Let `trainer`, a `transformers.Trainer`, read datasets that come from `iter_torch_batches`.

    These have no length, so `TrainingArguments(max_steps=...)` has to say when training ends. After
    a restart the dataset continues where the checkpoint was taken; `ignore_data_skip` is therefore
    set, or the `Trainer` would skip what it has seen once more.

    Returns:
        `trainer` itself, with its `get_..._dataloader` methods overridden.
    """
    base = type(trainer)

    class ReadsShards(base):  # type: ignore[misc, valid-type]
        """The program's own Trainer, with loaders for `syncline.data`."""

        def get_train_dataloader(self) -> Any:
            return (
                shard_loader(self.train_dataset)
                if isinstance(self.train_dataset, BatchIterable)
                else super().get_train_dataloader()
            )

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            chosen = self.eval_dataset if eval_dataset is None else eval_dataset
            chosen = self.eval_dataset[chosen] if isinstance(chosen, str) else chosen
            return (
                shard_loader(chosen)
                if isinstance(chosen, BatchIterable)
                else super().get_eval_dataloader(eval_dataset)
            )

        def get_test_dataloader(self, test_dataset: Any) -> Any:
            return (
                shard_loader(test_dataset)
                if isinstance(test_dataset, BatchIterable)
                else super().get_test_dataloader(test_dataset)
            )

    ReadsShards.__name__, ReadsShards.__qualname__ = base.__name__, base.__qualname__
    trainer.__class__ = ReadsShards
    if isinstance(trainer.train_dataset, BatchIterable):
        trainer.args.ignore_data_skip = True
    return trainer


def shard_loader(batches: BatchIterable[Any, Any]) -> DataLoader[Any]:
    """A loader that hands on what `iter_torch_batches` makes."""
    return DataLoader(ReadyBatches(batches), batch_size=None)


class ReadyBatches(IterableDataset[Any]):
    """Batches, as they are."""

    def __init__(self, batches: BatchIterable[Any, Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)
