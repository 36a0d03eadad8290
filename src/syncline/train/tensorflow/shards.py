"""`prepare_dataset_shard`: a rank's share of a dataset, for Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.optional import load

if TYPE_CHECKING:
    import tensorflow as tf


def prepare_dataset_shard(tf_dataset_shard: tf.data.Dataset) -> tf.data.Dataset:
    """The `tf.data.Dataset` of a rank's share (`get_dataset_shard(…).to_tf(…)`) as a distributed
    `fit` should see it.

    Its rows are shared out already, so TensorFlow shares out none; batches are fetched ahead.
    """
    tf_data: Any = load(
        "tensorflow", purpose="prepare_dataset_shard", install="syncline[tensorflow]"
    ).data
    options = tf_data.Options()
    options.experimental_distribute.auto_shard_policy = tf_data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options).prefetch(tf_data.AUTOTUNE)
