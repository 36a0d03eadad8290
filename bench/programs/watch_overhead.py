"""CPU time of the diagnosis of stalls on a rank with steps of 5 ms, as a share of the time.

Two workers train a small model with DDP, and wait until each step has lasted 5 ms. The CPU time of
the thread that watches the training thread comes from the system. The entries of PyTorch's
flight recorder are counted, and each costs the difference between the CPU time of an operation with
and without the recorder: processes with one rank (`recorder`) alternate, and the fastest counts.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from bench.programs import common, training

STEP_S = 0.005
WARM_UP, STEPS = 400, 4_000
OPERATIONS, REPEATS = 20_000, 3
WATCH = "syncline-hang-watch"
RECORDER = "recorder"
ENTRIES = "128"


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    model = training.wrap("syncline", torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(16, 64)

    def train(steps: int) -> None:
        for _ in range(steps):
            ends_at = time.perf_counter() + STEP_S
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            while time.perf_counter() < ends_at:
                batch.add(1.0)

    train(WARM_UP)
    calls, cpu_s, began = _calls(), _watch_cpu_s(), time.perf_counter()
    train(STEPS)
    values = {
        "watch_percent": 100.0 * (_watch_cpu_s() - cpu_s) / (time.perf_counter() - began),
        "calls_per_step": (_calls() - calls) / STEPS,
    }
    if torch.distributed.get_rank() == 0:
        common.write(config["out"], values)


def _watch_cpu_s() -> float:
    """Return the CPU time of the watch of this process in seconds."""
    (watch,) = (each for each in threading.enumerate() if each.name == WATCH)
    return int(Path(f"/proc/self/task/{watch.native_id}/schedstat").read_text().split()[0]) * 1e-9


def _calls() -> int:
    """Return the number of collective operations of this process, from the flight recorder."""
    content = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(True, False))
    return max(entry["collective_seq_id"] for entry in content["entries"])


def measure_recorder(out: str) -> None:
    """Write the CPU time of an operation in microseconds; the environment chooses the recorder."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{Path.cwd()}/rendezvous-{os.getpid()}", rank=0, world_size=1
    )
    tensor = torch.ones(2)
    times = []
    for _ in range(10):
        began = time.process_time()
        for _ in range(OPERATIONS // 10):
            torch.distributed.all_reduce(tensor)
        times.append(time.process_time() - began)
    common.write(out, {"operation_us": min(times) / (OPERATIONS // 10) * 1e6})
    torch.distributed.destroy_process_group()


def recorder_us() -> float:
    """Return the CPU time of an entry of the recorder in microseconds."""
    fastest = {"0": float("inf"), ENTRIES: float("inf")}
    for _ in range(REPEATS):
        for entries in fastest:
            out = f"operation-{entries}.json"
            subprocess.run(
                [sys.executable, "-m", __spec__.name, RECORDER, "--out", out],
                check=True,
                env={**os.environ, "TORCH_FR_BUFFER_SIZE": entries},
            )
            fastest[entries] = min(fastest[entries], common.read(out)["operation_us"])
    return max(0.0, fastest[ENTRIES] - fastest["0"])


def main() -> None:
    """Measure the watch in a training, and the recorder alone."""
    options = common.arguments()
    if options.library == RECORDER:
        measure_recorder(options.out)
        return
    watched = os.path.abspath("watch.json")
    training.train(options.library, train_fn, {"out": watched})
    values = common.read(watched)
    entry_us = recorder_us()
    recorder_percent = 100.0 * entry_us * 1e-6 * values["calls_per_step"] / STEP_S
    percent = values["watch_percent"] + recorder_percent
    common.write(options.out, {**values, "entry_us": entry_us, "percent": percent})


if __name__ == "__main__":
    main()
