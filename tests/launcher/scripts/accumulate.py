"""Gradient accumulation with `no_sync`."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(3)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(rank)
for step in range(8):
    is_last = step % 4 == 3
    with contextlib.nullcontext() if is_last else model.no_sync():
        loss = model(torch.randn(5, 4, generator=generator)).square().mean() / 4
        loss.backward()
    if is_last:
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{rank}] {step} {model.module.weight.sum().item():.6f}")
dist.destroy_process_group()
