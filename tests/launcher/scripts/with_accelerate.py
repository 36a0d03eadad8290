"""Training with Accelerate, as `accelerate launch` and torchrun start it."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
set_seed(0)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
rank = accelerator.process_index
for epoch in range(2):
    for features, target in loader:
        loss = torch.nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    losses = accelerator.gather(loss.detach().reshape(1))
    print(f"[{rank}] epoch {epoch} losses {[round(value, 6) for value in losses.tolist()]}")
print(f"[{rank}] {accelerator.distributed_type} {accelerator.num_processes}")
accelerator.end_training()
