"""Rank 1 is killed in the first attempt; all ranks go on from a snapshot in the second."""

import os
import signal
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
snapshot = os.path.join(sys.argv[1], "snapshot.pt")
step = int(torch.load(snapshot)["step"]) if os.path.exists(snapshot) else 0
dist.barrier()
while step < 4:
    total = torch.tensor([float(rank + step)])
    dist.all_reduce(total)
    step += 1
    if rank == 0:
        torch.save({"step": torch.tensor(step)}, snapshot)
    dist.barrier()
    if step == 2 and rank == 1 and attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if step > 2:
        print(f"[{rank}] attempt {attempt} step {step} total {total.item()}")
dist.destroy_process_group()
