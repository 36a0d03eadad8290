"""Typical programs for Ray run after `syncline migrate --write`, with the same output."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CORE = """
import ray
from ray.util import ActorPool
from ray.util.queue import Queue

ray.init(num_cpus=2, ignore_reinit_error=True)


@ray.remote
def square(x):
    return x * x


@ray.remote(max_restarts=1)
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, ref: "ray.ObjectRef | int"):
        self.value += ref
        return self.value

    @ray.method(num_returns=2)
    def both(self):
        return self.value, -self.value


counter = Counter.options(name="counter").remote()
assert ray.get([square.remote(x) for x in range(4)]) == [0, 1, 4, 9]
assert ray.get(ray.get_actor("counter").add.remote(square.remote(3))) == 9
assert ray.get(counter.both.remote()) == [9, -9]
pool = ActorPool([Counter.remote() for _ in range(2)])
assert len(list(pool.map_unordered(lambda actor, x: actor.add.remote(x), [1, 2, 3]))) == 3
queue = Queue(maxsize=3)
queue.put("x")
assert queue.get() == "x"
try:
    ray.get(square.remote("x"))
except ray.exceptions.RayTaskError as error:
    print("core", isinstance(error, TypeError))
ray.shutdown()
"""

DATA = """
import numpy as np
import ray
import ray.data
from ray.data.preprocessors import StandardScaler

ds = ray.data.from_items([{"x": float(i), "label": i % 2} for i in range(100)])
ds = ds.map_batches(lambda batch: {**batch, "square": np.square(batch["x"])}, batch_format="numpy")
counts = ds.groupby("label").count().take_all()
scaled = StandardScaler(columns=["x"]).fit_transform(ds)
print("data", sorted(row["count()"] for row in counts), abs(scaled.mean("x")) < 1e-6)
"""

TUNE = """
from ray import train, tune
from ray.air import RunConfig
from ray.tune.schedulers import ASHAScheduler
import ray.tune.search as search


def objective(config):
    for step in range(9):
        tune.report({"loss": (config["x"] - 1) ** 2 / (step + 1)})


if __name__ == "__main__":
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        param_space={"x": tune.grid_search([0.0, 1.0, 2.0])},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=ASHAScheduler(max_t=9, grace_period=3)
        ),
        run_config=tune.RunConfig(name="searched"),
    )
    print("tune", tuner.fit().get_best_result().config["x"], search.BasicVariantGenerator.__name__)
"""

TRAIN = """
import os
import tempfile

import torch
import ray.train as t
import ray.train.torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    model = ray.train.torch.prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(2):
        shard = t.get_dataset_shard("train")
        for batch in shard.iter_torch_batches(batch_size=16, dtypes=torch.float32):
            loss = (model(batch["data"]) - batch["data"].sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as directory:
            torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
            checkpoint = Checkpoint.from_directory(directory)
            t.report({"epoch": epoch, "loss": loss.item()}, checkpoint=checkpoint)


trainer = TorchTrainer(
    train_func,
    train_loop_config={"lr": 1e-3},
    datasets={"train": ray.data.range_tensor(64, shape=(2,))},
    scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    run_config=RunConfig(name="trained"),
)
result = trainer.fit()
with result.checkpoint.as_directory() as directory:
    print("train", result.metrics["epoch"], os.path.exists(os.path.join(directory, "model.pt")))
"""

SGD = """
import ray
import torch
from ray.util.sgd.torch import TrainingOperator
from ray.util.sgd.torch import TorchTrainer as Trainer


class Operator(TrainingOperator):
    def setup(self, config):
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
        samples = torch.utils.data.TensorDataset(torch.ones(32, 1), torch.ones(32, 1))
        self.model, self.optimizer, self.criterion = self.register(
            models=model, optimizers=optimizer, criterion=torch.nn.MSELoss()
        )
        self.register_data(train_loader=torch.utils.data.DataLoader(samples, batch_size=8))


ray.init(num_cpus=2)
trainer = Trainer(training_operator_cls=Operator, num_workers=2, config={"lr": 0.1})
print("sgd", trainer.train()["num_samples"])
trainer.shutdown()
"""

EXPECTED = {
    "core": (CORE, "core True\n"),
    "data": (DATA, "data [50, 50] True\n"),
    "tune": (TUNE, "tune 1.0 BasicVariantGenerator\n"),
    "train": (TRAIN, "train 1 True\n"),
    "sgd": (SGD, "sgd 32\n"),
}


@pytest.mark.processes
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in ("train", "sgd") else [])
        for name in EXPECTED
    ],
)
def test_converted_program_runs(name: str, syncline_command, tmp_path: Path) -> None:
    program, expected = EXPECTED[name]
    script = tmp_path / "program.py"
    script.write_text(program)
    done = syncline_command("migrate", "--write", str(script))
    assert done.exit_code == 0
    assert ", 0 to check by hand" in done.stderr
    assert "ray" not in script.read_text().replace("ray_", "").replace("Ray", "")
    ran = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "SYNCLINE_STORAGE_PATH": str(tmp_path / "runs")},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert expected in ran.stdout
