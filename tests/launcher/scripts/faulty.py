"""A plain DDP training, one rank with a fault after some seconds: `faulty.py CAUSE FOLDER [RANK]`.

The rank is 1 by default. The training ends if the file `stop` is in the folder.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from syncline.testing.training_faults import FaultInjector, FaultPlan, TrainingFault


class Batches(torch.utils.data.Dataset):
    def __init__(self, on_load):
        self.on_load = on_load

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        self.on_load()
        return torch.randn(16, 64)


def reduced(wants_end, fault):
    value = torch.tensor([float(wants_end)])
    if fault is TrainingFault.MISSING_COLLECTIVE:
        return False
    if fault is TrainingFault.MISMATCHED_COLLECTIVES:
        dist.broadcast(value, src=0)
    elif fault is TrainingFault.MISMATCHED_SHAPES:
        dist.all_reduce(torch.zeros(3))
    else:
        dist.all_reduce(value)
    return bool(value > 0)


fault = None if sys.argv[1] == "clean" else TrainingFault(sys.argv[1])
stop = Path(sys.argv[2], "stop")
dist.init_process_group("gloo")
rank = dist.get_rank()
faulty = int(sys.argv[3]) if len(sys.argv) > 3 else 1
injector = FaultInjector(FaultPlan(fault=fault, rank=faulty, first_step=150), rank)
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = iter(DataLoader(Batches(injector.load), batch_size=None))
step = -1
is_over = False
assert "TORCH_FR_BUFFER_SIZE" not in os.environ
try:
    while not is_over:
        step += 1
        injector.begin_step(step)
        time.sleep(0.02)
        batch = next(batches) + injector.poison
        injector.compute()
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        is_over = reduced(rank == 0 and stop.exists(), injector.collective)
finally:
    injector.close()
