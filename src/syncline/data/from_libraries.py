"""Datasets of what other libraries hold: PyTorch, Hugging Face, Dask, TensorFlow, Spark, Modin,
Daft, Mars.

PyTorch and Hugging Face datasets are read lazily, in parallel where they can be indexed. Dask
computes its partitions as tasks of the engine; they become blocks where they are computed. The
others come through the program's own memory, as one Arrow table or DataFrame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.data.columnar import block as blocks
from syncline.data.columnar.frames import is_frame
from syncline.data.from_memory import (
    blocks_of_refs,
    from_arrow,
    from_items,
    from_pandas,
    held_blocks,
)
from syncline.data.io.sources.huggingface import HuggingFaceDatasource
from syncline.data.io.sources.torch_dataset import TorchDatasource
from syncline.data.options import num_blocks_of
from syncline.data.read import read
from syncline.optional import load

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.data.dataset import Dataset, MaterializedDataset


def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """The items of a PyTorch dataset, in the column `item`.

    Args:
        dataset: A map-style dataset, which is read in parallel, or an iterable one, which is read
        in one task. Tasks get a copy of it. local_read: Read in one task on the program's own
        machine, for datasets that refer to files there.

    Raises:
        TypeError: It is neither map-style nor iterable.
    """
    return read(TorchDatasource(dataset, local_read), {})


def from_huggingface(
    dataset: Any,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """The rows of a Hugging Face dataset.

    Args:
        dataset: A `datasets.Dataset`, which is read in parallel, or an `IterableDataset`, which is
        read in one task. parallelism: Older name of `override_num_blocks`; -1 is None. concurrency:
        The most read tasks at once; None for as many as there is room for. override_num_blocks:
        Number of read tasks; None lets the executor choose.

    Raises:
        TypeError: A dictionary of splits, or something else.
    """
    options = {
        "parallelism": parallelism,
        "concurrency": concurrency,
        "override_num_blocks": override_num_blocks,
    }
    return read(HuggingFaceDatasource(dataset), options)


def from_dask(df: Any) -> MaterializedDataset:
    """The rows of a Dask DataFrame, without its index, each partition one block.

    Partitions are computed as tasks, in parallel, and become blocks in the same task; none of them
    comes to the program.

    Args:
        df: The DataFrame.

    Raises:
        TypeError: It is no Dask DataFrame.
        ImportError: Dask is not installed.
    """
    if not hasattr(df, "to_delayed") or not hasattr(df, "dask"):
        hint = ": use from_pandas" if is_frame(df) else ""
        raise TypeError(
            f"from_dask takes a dask.dataframe.DataFrame, not {type(df).__name__}{hint}"
        )
    dask = load("dask", purpose="from_dask", install="syncline[dask]")
    scheduler = load("syncline.util.dask", purpose="from_dask", install="syncline[dask]")
    parts = [dask.delayed(_as_block)(part) for part in df.to_delayed()]
    persisted = scheduler.ray_dask_persist(*parts)
    refs = [part.dask[part.key].ref for part in persisted]
    return held_blocks(blocks_of_refs(refs, _as_it_is))


def _as_block(part: Any) -> pa.Table:
    """A partition as a table. A Series is one column, of its name."""
    return blocks.from_batch(part if is_frame(part) else part.to_frame())


def _as_it_is(table: pa.Table) -> pa.Table:
    return table


def from_tf(dataset: Any) -> MaterializedDataset:
    """The elements of a `tf.data.Dataset`: dicts are rows, anything else the value of the column
    `item`. All of them are read at once.

    Args:
        dataset: The dataset; without ragged tensors.
    """
    return from_items(list(_having("from_tf", dataset, "as_numpy_iterator", "a tf.data.Dataset")()))


def from_spark(
    df: Any, *, parallelism: int | None = None, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """The rows of a Spark DataFrame, collected into the program's memory.

    Args:
        df: The DataFrame.
        parallelism: Older name of `override_num_blocks`.
        override_num_blocks: Number of blocks.
    """
    wanted = num_blocks_of(override_num_blocks, parallelism)
    if hasattr(df, "toArrow"):  # since Spark 4
        return from_arrow(df.toArrow(), override_num_blocks=wanted)
    return from_pandas(
        _having("from_spark", df, "toPandas", "a pyspark.sql.DataFrame")(),
        override_num_blocks=wanted,
    )


def from_modin(df: Any) -> MaterializedDataset:
    """The rows of a Modin DataFrame, without its index, collected into the program's memory.

    Args:
        df: The DataFrame.
    """
    return from_pandas(_having("from_modin", df, "_to_pandas", "a modin.pandas.DataFrame")())


def from_mars(df: Any) -> MaterializedDataset:
    """The rows of a Mars DataFrame, without its index, computed and collected into the program's
    memory.

    Args:
        df: The DataFrame.
    """
    return from_pandas(_having("from_mars", df, "to_pandas", "a mars.dataframe.DataFrame")())


def from_daft(df: Any) -> MaterializedDataset:
    """The rows of a Daft DataFrame, computed and collected into the program's memory.

    Args:
        df: The DataFrame.
    """
    return from_arrow(_having("from_daft", df, "to_arrow", "a daft.DataFrame")())


def _having(caller: str, value: Any, method: str, wanted: str) -> Any:
    """The method that makes something else of a value. TypeError where it has none: the value is of
    another library.
    """
    found = getattr(value, method, None)
    if found is None:
        raise TypeError(f"{caller} takes {wanted}, not {type(value).__name__}")
    return found
