"""Iteration: from the rows of an execution to the batches of a rank, resumable at any batch.

Files, in the order in which data flows through them:

    streaming_split.py    a source per rank of a shared dataset; the client of the coordinator
    split_coordinator.py  runs an execution per pass and assigns its rows to ranks
    split_rendezvous.py   messages of a split; which ranks have joined the next pass
    shard_queues.py       rows assigned to a rank and not fetched
    batch_source.py       sources of batches; the passes over a dataset
    position.py           consumed and remaining rows of the global sequence
    sharding.py           which rows belong to which rank; local shuffle
    cursor.py             progress of a rank; merging the cursors of all ranks
    batching.py           rows of a rank -> batches; the iterables that users loop over
    prefetch.py           a thread that prepares the next batches
    torch_tensors.py      columns -> tensors
    torch.py              batches -> tensors on a device, or (features, label)
    torch_background.py   the same while torch is imported on a thread
    tensorflow.py         batches -> TensorFlow tensors
    jax.py                batches -> JAX arrays
"""
