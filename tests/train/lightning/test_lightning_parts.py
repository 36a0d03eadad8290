"""Lightning's classes under a training session: in this process, with no worker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import syncline
from syncline import train
from syncline.train.session import get_session, set_session
from syncline.train.torch import TorchTrainer, prepare_data_loader

INSTALLED = (
    spec := find_spec("lightning")
) is not None and spec.origin is not None  # this folder has the name, too
needs_lightning = pytest.mark.skipif(not INSTALLED, reason="lightning is not installed")


def fit(function: Any, **options: Any) -> train.Result:
    return TorchTrainer(
        function, scaling_config=train.ScalingConfig(num_workers=0), **options
    ).fit()


def module() -> Any:
    import lightning.pytorch as pl

    class Line(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x = batch["x"] if isinstance(batch, dict) else batch
            loss = self.line(x.float().reshape(-1, 1)).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Line()


def trainer(*callbacks: Any, **options: Any) -> Any:
    import lightning.pytorch as pl

    from syncline.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer

    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    made = pl.Trainer(
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        accelerator="cpu",
        callbacks=list(callbacks),
        **quiet,
        **options,
    )
    return prepare_trainer(made)


@pytest.fixture(autouse=True)
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In local mode nobody deletes what was reported."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def local_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def test_import_without_lightning_names_package_to_install() -> None:
    hide = "import sys; sys.modules.update({'lightning': None, 'pytorch_lightning': None})"
    done = subprocess.run(
        [sys.executable, "-c", f"{hide}; import syncline.train.lightning"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert re.search(
        r"lightning', which is not installed: pip install 'syncline\[lightning\]'", done.stderr
    )


@needs_lightning
def test_package_imported_by_program_is_used() -> None:
    from syncline.train.lightning.library import package

    assert package({"pytorch_lightning", "torch"}) == "pytorch_lightning"
    assert package({"pytorch_lightning", "lightning.pytorch"}) == "lightning.pytorch"
    assert package({"torch"}) == "lightning.pytorch"


@needs_lightning
def test_trainer_not_configured_for_workers_is_refused() -> None:
    import lightning.pytorch as pl

    from syncline.train.lightning import RayDDPStrategy, prepare_trainer

    with pytest.raises(
        RuntimeError, match="SingleDeviceStrategy, which starts processes.*strategy=RayDDPStrategy"
    ):
        prepare_trainer(
            pl.Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
        )

    def loop() -> None:
        made = pl.Trainer(
            strategy=RayDDPStrategy(),
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
        )
        with pytest.raises(
            RuntimeError,
            match=r"environment LightningEnvironment.*plugins=\[RayLightningEnvironment",
        ):
            prepare_trainer(made)

    fit(loop)


@needs_lightning
def test_ranks_and_device_are_those_of_session() -> None:
    from syncline.train.lightning import RayFSDPStrategy, RayLightningEnvironment

    class Session:
        (
            world_rank,
            world_size,
            local_rank,
            local_world_size,
            node_rank,
            gpu_ids,
            use_gpu,
            local_mode,
        ) = 5, 8, 1, 4, 1, (), False, False

    set_session(Session())
    try:
        environment = RayLightningEnvironment()
        environment.set_world_size(1)
        environment.set_global_rank(0)
        assert (
            environment.world_size(),
            environment.global_rank(),
            environment.local_rank(),
            environment.node_rank(),
        ) == (8, 5, 1, 1)
        assert environment.creates_processes_externally
        strategy = RayFSDPStrategy(cluster_environment=environment)
        assert strategy.root_device == torch.device("cpu")
        assert strategy.distributed_sampler_kwargs == {"num_replicas": 8, "rank": 5}
    finally:
        set_session(None)


@needs_lightning
def test_reports_at_end_of_epochs_and_every_n_steps() -> None:
    from syncline.train.lightning import RayTrainReportCallback

    def loop() -> list[int]:
        batches = DataLoader(torch.ones(20), batch_size=2)
        trainer(
            RayTrainReportCallback(every_n_train_steps=2), max_epochs=2, accumulate_grad_batches=2
        ).fit(module(), batches)
        session: Any = get_session()
        return [report["step"] for report in session.reports]

    # 5 optimizer steps an epoch; the fifth is its end, where the report comes anyway
    result = fit(loop)
    assert result.return_value == [2, 4, 5, 6, 8, 10]
    assert set(result.metrics or {}) == {"loss", "epoch", "step"}
    assert result.checkpoint is not None
    assert (
        torch.load(Path(result.checkpoint.path, "checkpoint.ckpt"), weights_only=False)[
            "global_step"
        ]
        == 10
    )


@needs_lightning
def test_callback_passes_on_upload_mode_and_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    from syncline.train.lightning import RayTrainReportCallback, reporting

    passed: list[dict[str, Any]] = []
    monkeypatch.setattr(
        reporting, "report", lambda metrics, checkpoint, **options: passed.append(options)
    )
    callback = RayTrainReportCallback(train.CheckpointUploadMode.ASYNC, validation=True)
    fit(lambda: trainer(callback, max_epochs=1).fit(module(), DataLoader(torch.ones(2))))
    assert [(options["checkpoint_upload_mode"], options["validation"]) for options in passed] == [
        (train.CheckpointUploadMode.ASYNC, True)
    ]
    assert passed[0]["delete_local_checkpoint_after_upload"] is True
    with pytest.raises(ValueError, match="every_n_train_steps=0"):
        RayTrainReportCallback(every_n_train_steps=0)


@needs_lightning
@pytest.mark.parametrize("limit", [None, 3])
def test_position_in_dataset_is_that_of_trained_batch(
    local_engine: None, limit: int | None
) -> None:
    import lightning.pytorch as pl

    places: list[tuple[int, bool]] = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            state = train.get_dataset_shard("train").state_dict()
            places.append((state["rows"], state["ended"]))

    def loop() -> None:
        batches = train.get_dataset_shard("train").iter_torch_batches(batch_size=2)
        options = {} if limit is None else {"limit_train_batches": limit}
        trainer(Watch(), max_epochs=1, **options).fit(module(), batches)

    dataset = syncline.data.from_items([{"x": float(i)} for i in range(8)])
    fit(loop, datasets={"train": dataset})
    assert places == (
        [(2, False), (4, False), (6, False), (8, True)]
        if limit is None
        else [(2, False), (4, False), (6, False)]
    )


def places() -> dict[str, tuple[int, bool]]:
    """Of each loader: the number of its pass, and whether that is over, as a checkpoint would keep
    it.
    """
    readers = json.loads(get_session().readers.capture())["readers"]
    return {name: (state["epoch"], state["ended"]) for name, state in readers.items()}


@needs_lightning
@pytest.mark.parametrize(("limit", "batches"), [(1.0, 4), (0.5, 2), (3, 3)])
def test_pass_ends_with_last_batch_used_by_lightning(limit: int | float, batches: int) -> None:
    import lightning.pytorch as pl

    seen: list[dict[str, tuple[int, bool]]] = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            seen.append(places())

    fit(
        lambda: trainer(Watch(), max_epochs=2, limit_train_batches=limit).fit(
            module(), DataLoader(torch.ones(8), batch_size=2)
        )
    )
    assert seen == [
        {"data loader 1": (epoch, number == batches)}
        for epoch in range(2)
        for number in range(1, batches + 1)
    ]


@needs_lightning
def test_sanity_check_is_not_part_of_validation() -> None:
    import lightning.pytorch as pl

    seen: list[tuple[int, bool]] = []

    class Watch(pl.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            seen.append(places()["data loader 1"])

    def loop() -> None:
        checked = prepare_data_loader(DataLoader(torch.ones(8), batch_size=2))
        model = module()
        type(model).validation_step = lambda self, batch, batch_idx: None
        options = {"max_epochs": 2, "num_sanity_val_steps": 2, "use_distributed_sampler": False}
        trainer(Watch(), **options).fit(model, DataLoader(torch.ones(2), batch_size=2), checked)

    fit(loop)
    assert seen == [(0, True), (1, True)]


@needs_lightning
def test_recreated_or_stateful_loaders_are_left_unchanged() -> None:
    class Stateful(DataLoader[Any]):
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    def loop() -> dict[str, Any]:
        trainer(max_epochs=1, reload_dataloaders_every_n_epochs=1).fit(
            module(), DataLoader(torch.ones(2))
        )
        trainer(max_epochs=1).fit(module(), Stateful(torch.ones(2)))
        return places()

    assert fit(loop).return_value == {}


@needs_lightning
def test_position_in_stream_is_that_of_trained_batch() -> None:
    """Lightning fetches a batch ahead from loaders without length."""
    import lightning.pytorch as pl

    class Numbers(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            return (torch.ones(1) for _ in range(6))

    trained: list[tuple[int, bool]] = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            readers = json.loads(get_session().readers.capture())["readers"]
            state = readers["data loader 1"]
            trained.append((state["batches"], state["ended"]))

    fit(lambda: trainer(Watch(), max_epochs=1).fit(module(), DataLoader(Numbers(), batch_size=2)))
    assert trained == [(1, False), (2, False), (3, True)]


@needs_lightning
def test_loader_of_torchdata_is_prepared() -> None:
    loader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loop() -> dict[str, Any]:
        trainer(max_epochs=1).fit(module(), loader(torch.ones(4), batch_size=2))
        return places()

    assert fit(loop).return_value == {"data loader 1": (0, True)}


@needs_lightning
def test_prepared_loader_sharded_by_lightning_is_refused() -> None:
    def loop() -> None:
        trainer(max_epochs=1).fit(module(), prepare_data_loader(DataLoader(torch.ones(2))))

    with pytest.raises(RuntimeError, match="use_distributed_sampler=False"):
        fit(loop)
