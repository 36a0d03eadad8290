"""What stands between a `transformers.Trainer` and a training session: in this process, with a
Trainer that does nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import syncline
from syncline import train
from syncline.train.session import set_session
from syncline.train.torch import TorchTrainer

needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed"
)


@pytest.fixture
def local_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def saved(output: Path, step: int) -> Path:
    directory = output / f"checkpoint-{step}"
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_text(f"step {step}")
    return directory


def test_import_without_transformers_names_package_to_install() -> None:
    hidden = "import sys; sys.modules['transformers'] = None"
    program = f"{hidden}; import syncline.train.huggingface.transformers"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (
        "'transformers', which is not installed: pip install 'syncline[huggingface]'" in done.stderr
    )


@needs_transformers
def test_checkpoint_of_step_is_reported_with_latest_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syncline.train.huggingface.transformers import RayTrainReportCallback, reporting

    reports: list[tuple[dict[str, Any], list[str], str]] = []

    def note(metrics: dict[str, Any], checkpoint: train.Checkpoint) -> None:
        files = sorted(os.listdir(os.path.join(checkpoint.path, "checkpoint")))
        reports.append(
            (metrics, files, Path(checkpoint.path, "checkpoint", "model.safetensors").read_text())
        )

    monkeypatch.setattr(reporting, "report", note)
    arguments = SimpleNamespace(output_dir=str(tmp_path))
    state = SimpleNamespace(
        global_step=4,
        log_history=[{"loss": 2.0, "step": 2}, {"eval_loss": 3.0}, {"loss": 1.0, "step": 4}],
    )
    saved(tmp_path, 4)
    saved(tmp_path, 6)  # of an attempt that came further, but not to its report
    (tmp_path / ".syncline-of-that-attempt").mkdir()

    def loop() -> None:
        callback = RayTrainReportCallback()
        callback.on_train_begin(arguments, state, None)
        callback.on_save(arguments, state, None)

    TorchTrainer(loop, scaling_config=train.ScalingConfig(num_workers=0)).fit()
    assert reports == [
        ({"loss": 1.0, "eval_loss": 3.0, "step": 4}, ["model.safetensors"], "step 4")
    ]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-4", "checkpoint-6"]


@needs_transformers
@pytest.mark.parametrize(
    ("rank", "others", "reports"),
    [
        (0, ["shared", "shared"], True),
        (1, ["shared", "shared"], False),
        (1, ["elsewhere", "shared"], True),
        (1, [None, "shared"], True),
        (1, ["shared", None], False),
    ],
)
def test_lowest_rank_of_shared_directory_reports_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank: int,
    others: list[str | None],
    reports: bool,
) -> None:
    import torch.distributed as dist

    from syncline.train.huggingface.transformers import reporting

    (tmp_path / "shared").mkdir()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: len(others))

    def gather(places: list[Any], place: Any) -> None:
        places[:] = [None if other is None else (0, str(tmp_path / other)) for other in others]
        assert places[rank] == place

    monkeypatch.setattr(dist, "all_gather_object", gather)
    set_session(SimpleNamespace(world_rank=rank, node_rank=0))
    try:
        assert reporting.is_reporter(tmp_path / (others[rank] or "missing")) is reports
    finally:
        set_session(None)


@needs_transformers
def test_prepared_trainer_reads_batches_of_datasets_unchanged(local_engine: None) -> None:
    from syncline.train.huggingface.transformers import prepare_trainer

    class Trainer:
        def __init__(self, **datasets: Any) -> None:
            self.args = SimpleNamespace(ignore_data_skip=False)
            self.train_dataset, self.eval_dataset = datasets.get("train"), datasets.get("eval")

        def get_train_dataloader(self) -> Any:
            return "the trainer's own"

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return "the trainer's own", eval_dataset

        def get_test_dataloader(self, test_dataset: Any) -> Any:
            return "the trainer's own", test_dataset

    iterator = syncline.data.range(5).iterator()
    batches = iterator.iter_torch_batches(batch_size=2)
    trainer = prepare_trainer(Trainer(train=batches, eval={"small": batches, "other": [1]}))
    assert type(trainer).__name__ == "Trainer"
    assert trainer.args.ignore_data_skip
    expected = [[0, 1], [2, 3], [4]]
    for loader in (
        trainer.get_train_dataloader(),
        trainer.get_eval_dataloader("small"),
        trainer.get_eval_dataloader(batches),
        trainer.get_test_dataloader(batches),
    ):
        assert [batch["id"].tolist() for batch in loader] == expected
    assert trainer.get_eval_dataloader("other") == ("the trainer's own", "other")

    plain = prepare_trainer(Trainer(train=[1], eval=[2]))
    assert not plain.args.ignore_data_skip
    assert plain.get_train_dataloader() == "the trainer's own"
    assert plain.get_eval_dataloader() == ("the trainer's own", None)
    assert plain.get_test_dataloader([3]) == ("the trainer's own", [3])
