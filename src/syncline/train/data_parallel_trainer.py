"""The name of `ray.train.data_parallel_trainer`; it is defined in `trainer`."""

from syncline.train.trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
