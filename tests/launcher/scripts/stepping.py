"""Makes optimizer steps until it is stopped; `stepping.py DIRECTORY`."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
Path(sys.argv[1], f"ready-{dist.get_rank()}").write_text(str(os.getpid()))
while True:
    model(torch.randn(64, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
