"""CUDA_VISIBLE_DEVICES of tasks, with and without the variables that keep it."""

import os

import pytest

import syncline


def visible():
    return os.environ.get("CUDA_VISIBLE_DEVICES"), syncline.get_gpu_ids()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variable", "keeps_all"),
    [
        ("UNRELATED", False),
        ("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", True),
        ("SYNCLINE_NOSET_CUDA_VISIBLE_DEVICES", True),
    ],
)
def test_tasks_see_their_gpus_or_all(monkeypatch, variable, keeps_all):
    monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "as before")
    with syncline.init(num_cpus=2, num_gpus=2, log_to_driver=False):
        seen, gpu_ids = syncline.get(syncline.remote(num_gpus=1)(visible).remote())
        assert len(gpu_ids) == 1
        assert seen == ("as before" if keeps_all else str(gpu_ids[0]))
        seen, gpu_ids = syncline.get(syncline.remote(visible).remote())
        assert gpu_ids == []
        assert seen == ("as before" if keeps_all else "")
