"""Iteration: from the rows of a plan's output to the batches of a rank, and the cursor that a
restart continues from.

Files, in the order in which data flows through them:
    position.py     which rows of the global sequence are consumed, and where the pipeline may start again
    dealing.py      rows of the sequence -> ranks, in rounds of chunks
    windows.py      local shuffle: the order of the rows within windows
    cursor.py       how far one rank is; the cursors of all ranks -> a position, or the exact continuation
    batching.py     pieces of blocks -> batches; the iterables that programs loop over
    prefetch.py     the next batches on a thread
    device.py       which device training wants tensors on
    torch.py        batches -> tensors on a device; torch_features.py: -> (features, label)
    tensorflow.py, jax.py   the same for these libraries

Everything but `prefetch` is free of threads, and nothing here knows of processes or of the
executor.
"""
