"""Memory snapshots: the state of training in shared memory, which survives its processes.

Files, in the order in which a snapshot passes through them:

- `config`: `SnapshotConfig`, and the specification for the workers.
- `functions`: functions that a training function calls.
- `rank_snapshots`: snapshots of one rank: when, where, and within which memory.
- `capture`, `torch_tensors`: from the state of the program to regions of memory, and back.
- `slot`: format of a file.
- `direct_save`, `torch_files`: files of `train.save`.
- `code_version`: version of a training function.
- `directory`, `reaper`: files of a run on a node, choice of a snapshot, removal.

Automatic snapshots of models and optimizers are in `train.torch.automatic_snapshots`.
"""
