"""Rank 0 waits for data, and rank 1 waits for rank 0; both save."""

import os
import threading
import time

import torch
import torch.distributed
from torch.utils.data import DataLoader


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        time.sleep(0.5 if os.environ["RANK"] == "0" else 0)
        return index


class SlowFile:
    def write(self, data):
        time.sleep(0.02)
        return len(data)

    def flush(self):
        pass


torch.distributed.init_process_group("gloo")
for _ in DataLoader(Slow()):
    torch.distributed.barrier()
torch.save(torch.zeros(3), SlowFile())
print(f"[{os.environ['RANK']}] {threading.active_count()}")
