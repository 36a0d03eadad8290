"""Memory snapshots: the state of training in shared memory, which survives its processes.

Files, in the order in which a snapshot passes through them:

- `config`: `SnapshotConfig`, and the specification for the workers.
- `functions`: functions that a training function calls.
- `rank_snapshots`: snapshots of one rank: when, where, and within which memory.
- `capture`, `torch_tensors`: from the state of the program to regions of memory, and back.
- `slot`: format of a file.
- `copier`, `node_files`: copies on another node, and the way back.
- `direct_save`, `torch_files`: files of `train.save`.
- `code_version`: version of a training function.
- `directory`, `reaper`: files of a run on a node, and their removal.
- `choice`: choice of a snapshot among the files of all nodes, and of the nodes for copies.

Automatic snapshots of models and optimizers are in `train.torch.automatic_snapshots`.
"""
