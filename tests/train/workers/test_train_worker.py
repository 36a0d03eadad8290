"""What a training worker does as it starts, here without a process of its own."""

import sys
from pathlib import Path

import pytest

from syncline.train.torch import TorchConfig
from syncline.train.workers.worker import TrainWorker


def test_a_worker_imports_what_it_was_told_to_as_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needed_by_a_worker.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "needed_by_a_worker", raising=False)
    TrainWorker(["needed_by_a_worker"])
    assert "needed_by_a_worker" in sys.modules
    del sys.modules["needed_by_a_worker"]


def test_a_module_that_cannot_be_imported_does_not_keep_a_worker_from_starting() -> None:
    worker = TrainWorker(["no_such_module_anywhere"])
    worker.drain()
    assert list(worker.messages()) == []  # it answers


def test_workers_of_torch_import_their_side_of_the_process_group() -> None:
    assert TorchConfig().worker_modules == ("syncline.train.torch.process_group",)
