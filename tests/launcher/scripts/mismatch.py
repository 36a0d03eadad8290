"""Ranks wait in different collective operations."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
Path(sys.argv[1], f"ready-{rank}").write_text(str(os.getpid()))
value = torch.ones(1)
if rank == 0:
    dist.all_reduce(value)
else:
    dist.barrier()
