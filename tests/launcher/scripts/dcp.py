"""Distributed checkpoint: save, change, load."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
rank = dist.get_rank()
state = {"shared": torch.arange(4.0), "step": torch.tensor(7)}
dcp.save(state, checkpoint_id=sys.argv[1])
state["shared"].zero_()
state["step"].zero_()
dcp.load(state, checkpoint_id=sys.argv[1])
print(f"[{rank}] {state['shared'].tolist()} {state['step'].item()}")
dist.destroy_process_group()
