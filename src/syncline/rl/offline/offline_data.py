"""`OfflineData`: batches of recorded steps, read with `syncline.data`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from syncline import data
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.offline.filesystems import named_filesystem
from syncline.rl.offline.prelearner import OfflinePreLearner, nested
from syncline.rl.value_types import Batch, StateDict
from syncline.suggestions import did_you_mean

logger = logging.getLogger("syncline")

SHUFFLED_BATCHES = 8
"""Default size of the shuffle buffer, in batches."""
_NOT_LEARNED = (Columns.EPS_ID, Columns.AGENT_ID, Columns.MODULE_ID)


class OfflineData:
    """Reads the data of `config.input_` repeatedly, in a new order each time.

    Args:
        config: The algorithm's options.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        self.config = config
        self.data = self._mapped(self._read())
        """The dataset of steps."""
        self._iterator = self.data.iterator()
        self._batch_size = 0
        self._loop: Any = None
        self._batches: Iterator[Batch] = iter(())

    def sample(self, num_samples: int) -> dict[str, Tree]:
        """Return the columns of the next `num_samples` steps, or fewer at the end of a pass.

        Raises:
            ValueError: The data are empty.
        """
        if num_samples != self._batch_size:
            self._begin(num_samples)
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self._loop)
            batch = next(self._batches, None)
        if batch is None:
            raise ValueError(f"`input_={self.config.input_!r}` contains no recorded steps.")
        return _learned(batch)

    def one_pass(self, num_samples: int) -> Iterator[dict[str, Tree]]:
        """Yield the remaining batches of this pass, or the batches of a new one."""
        yield self.sample(num_samples)
        for batch in self._batches:
            yield _learned(batch)

    def _begin(self, batch_size: int) -> None:
        """Change the batch size for the rest of the data."""
        config = self.config
        options = {
            "local_shuffle_buffer_size": config.shuffle_buffer_size
            or SHUFFLED_BATCHES * batch_size,
            "local_shuffle_seed": config.seed,
            **config.iter_batches_kwargs,
        }
        self._batch_size = batch_size
        self._loop = self._iterator.iter_batches(batch_size=batch_size, **options)
        self._batches = iter(())

    def get_state(self) -> StateDict:
        """Return the position in the data."""
        return {"iterator": dict(self._iterator.state_dict())}

    def set_state(self, state: StateDict) -> None:
        """Continue at a position; if the data have changed, warn and start at the beginning."""
        try:
            self._iterator.load_state_dict(state["iterator"])
        except ValueError as error:
            logger.warning("Reading the recorded data from the beginning: %s", error)
        self._batches = iter(())

    def _read(self) -> Any:
        config = self.config
        if callable(config.input_read_method):
            dataset = config.input_read_method(config.input_, **config.input_read_method_kwargs)
        elif callable(config.input_):
            dataset = config.input_()
        else:
            options = dict(config.input_read_method_kwargs)
            filesystem = named_filesystem(config.input_filesystem, config.input_filesystem_kwargs)
            if filesystem is not None:
                options["filesystem"] = filesystem
            dataset = _reader(config.input_read_method)(config.input_, **options)
        return dataset.materialize() if config.materialize_data else dataset

    def _mapped(self, dataset: Any) -> Any:
        config = self.config
        mapped = dataset.map_batches(
            config.prelearner_class or OfflinePreLearner,
            fn_constructor_kwargs={"config": config},
            batch_size=config.input_read_batch_size or config.train_batch_size_per_learner,
            batch_format="numpy",
            **{"concurrency": 1, **config.map_batches_kwargs},
        )
        made = self.finished(mapped)
        return made.materialize() if config.materialize_mapped_data else made

    def finished(self, steps: object) -> Any:
        """Add the columns that can only be computed from whole episodes to the dataset of steps.

        Subclasses may override it. By default it adds none.
        """
        return steps


def _learned(batch: Batch) -> dict[str, Tree]:
    return nested({name: column for name, column in batch.items() if name not in _NOT_LEARNED})


def _reader(name: str) -> Any:
    if not name.startswith("read_") or not hasattr(data, name):
        readers = [each for each in dir(data) if each.startswith("read_")]
        raise ValueError(
            f"`input_read_method={name!r}` is not a reader of `syncline.data`."
            f"{did_you_mean(name, readers)}"
        )
    return getattr(data, name)
