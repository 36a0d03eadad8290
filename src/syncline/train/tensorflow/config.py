"""`TensorflowConfig`, its backend, and the worker's side of a TensorFlow cluster.

The backend passes the addresses of all workers to TensorFlow in TF_CONFIG. TensorFlow connects when
the training function creates its strategy, and binds this rank's port then, on every interface of
the node. The port is held until the function begins.

Keras 3 cannot train under `MultiWorkerMirroredStrategy`, so `tf.keras` in the workers is Keras 2,
the package tf_keras. With TF_USE_LEGACY_KERAS=0 in the environment it is Keras 3, for functions
with their own training loops.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline import settings
from syncline.optional import load, require
from syncline.suggestions import suggest_arguments
from syncline.train.backend import (
    Backend,
    BackendConfig,
    WorkerGroup,
    hold_port,
    host_and_port,
    hosts_of,
    is_this_process,
    release_ports,
)
from syncline.train.session import get_session

if TYPE_CHECKING:
    import tensorflow as tf


@suggest_arguments
@dataclass(frozen=True)
class TensorflowConfig(BackendConfig):
    """Communication of the workers of a `TensorflowTrainer`. The strategy in the training function
    chooses the details.
    """

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return TensorflowBackend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[object]]:
        return training_context


class TensorflowBackend(Backend[TensorflowConfig]):
    """Configures the workers as one TensorFlow cluster.

    A worker in this process is alone, so its environment is left unchanged.
    """

    def on_start(self, worker_group: WorkerGroup, backend_config: TensorflowConfig) -> None:
        """Join all ranks. ImportError if a worker lacks a package."""
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        ports = worker_group.execute(hold_port)
        addresses = [
            host_and_port(host, port) for host, port in zip(hosts_of(workers), ports, strict=True)
        ]
        worker_group.execute(join, addresses)


# -- on the workers


def join(addresses: Sequence[str]) -> None:
    """Set TF_CONFIG to `addresses` (in rank order) and this rank, and import TensorFlow.

    Raises:
        ImportError: TensorFlow or tf_keras is not installed.
    """
    rank = get_session("tensorflow.backend.join").world_rank
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": rank}}
    )
    # TensorFlow reads these when it is imported. Without the second, it logs about twenty lines for
    # each connection.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    if settings.flag("TF_USE_LEGACY_KERAS"):
        require(
            "tf_keras",
            purpose="tf.keras in the workers of TensorflowTrainer",
            install="syncline[tensorflow]",
        )
    load("tensorflow", purpose="TensorflowTrainer", install="syncline[tensorflow]")


@contextmanager
def training_context() -> Iterator[None]:
    """Context of the training function. Releases this rank's port, which TensorFlow binds."""
    release_ports()
    yield


def prepare_dataset_shard(tf_dataset_shard: tf.data.Dataset) -> tf.data.Dataset:
    """Return the `tf.data.Dataset` of a rank's shard (`get_dataset_shard(…).to_tf(…)`) with options
    for a distributed `fit`.

    Its rows are already sharded, so TensorFlow's sharding is disabled. Batches are prefetched.
    """
    tf_data: Any = load(
        "tensorflow", purpose="prepare_dataset_shard", install="syncline[tensorflow]"
    ).data
    options = tf_data.Options()
    options.experimental_distribute.auto_shard_policy = tf_data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options).prefetch(tf_data.AUTOTUNE)
