"""`RunConfig`: defaults, storage paths, and the error for every mistake."""

import os
import pickle
import warnings

import pytest
from pyarrow import fs

from syncline.train.config import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    ScalingConfig,
    SyncConfig,
)
from syncline.train.run_config import RunConfig, UserCallback, generate_run_name


def test_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = RunConfig()
    assert config.storage_path == f"{tmp_path}/syncline_results"
    assert config.failure_config == FailureConfig()
    assert config.checkpoint_config == CheckpointConfig()
    assert config.logging_config == LoggingConfig()


def test_floating_point_operations_are_positive_numbers():
    assert RunConfig(flops_per_step=3e12, peak_flops_per_s=1e15).flops_per_step == 3e12
    for mistake in (0, -1.0, "3e12"):
        with pytest.raises(ValueError, match="flops_per_step"):
            RunConfig(flops_per_step=mistake)


def test_two_configs_made_in_the_same_second_get_different_names():
    assert RunConfig().name != RunConfig().name


def test_a_generated_name_says_when():
    assert generate_run_name(1_700_000_000.0, "abc123").startswith("train_run-2023-11-1")
    assert generate_run_name(1_700_000_000.0, "abc123").endswith("-abc123")


def test_a_relative_storage_path_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert RunConfig(storage_path="runs").storage_path == os.path.join(os.getcwd(), "runs")


def test_home_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunConfig(storage_path="~/runs").storage_path == f"{tmp_path}/runs"


def test_a_user_without_a_home_writes_where_the_program_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert RunConfig().storage_path == os.path.join(os.getcwd(), "syncline_results")


def test_the_environment_names_the_default_storage_path(monkeypatch):
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", "s3://bucket/runs")
    assert RunConfig().storage_path == "s3://bucket/runs"
    assert RunConfig(storage_path="/other").storage_path == "/other"


def test_a_path_object_is_accepted(tmp_path):
    assert RunConfig(storage_path=tmp_path).storage_path == str(tmp_path)


def test_uris_and_paths_on_other_filesystems_stay_as_they_are(tmp_path):
    assert RunConfig(storage_path="s3://bucket/runs").storage_path == "s3://bucket/runs"
    elsewhere = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert (
        RunConfig(storage_path="bucket/runs", storage_filesystem=elsewhere).storage_path
        == "bucket/runs"
    )


@pytest.mark.parametrize("name", ["sync_config", "stop", "progress_reporter", "log_to_file"])
def test_a_deprecated_parameter_warns_and_is_accepted(name):
    with pytest.warns(DeprecationWarning, match=f"{name}=|SyncConfig is") as caught:
        RunConfig(**{name: SyncConfig() if name == "sync_config" else 1})
    assert any(f"{name}=" in str(warning.message) for warning in caught)


def test_nothing_deprecated_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RunConfig()
        ScalingConfig()
        FailureConfig()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"failure_config": {"max_failures": 3}}, "max_failures.*FailureConfig"),
        ({"checkpoint_config": FailureConfig()}, "CheckpointConfig"),
        ({"logging_config": "INFO"}, "LoggingConfig"),
        ({"worker_runtime_env": [1]}, "worker_runtime_env=\\[1\\]"),
        ({"storage_filesystem": "local"}, "storage_filesystem='local'"),
        ({"storage_path": 5}, "storage_path=5"),
        ({"storage_path": ""}, "storage_path=''"),
        ({"callbacks": [object()]}, "not a UserCallback"),
        ({"callbacks": [UserCallback]}, "instance"),
        ({"callbacks": UserCallback()}, "list"),
        ({"verbose": 4}, "verbose=4"),
        ({"verbose": "no"}, "verbose='no'"),
        ({"name": 3}, "name=3"),
        ({"name": ""}, "name=''"),
        ({"name": "/abs"}, "'/abs'"),
        ({"name": "a/../../b"}, "storage_path"),
    ],
)
def test_a_mistake_is_refused_with_its_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        RunConfig(**arguments)


def test_a_callback_is_accepted():
    callback = UserCallback()
    assert RunConfig(callbacks=[callback]).callbacks == [callback]


def test_it_survives_pickle():
    config = RunConfig(
        name="run", storage_path="/runs", checkpoint_config=CheckpointConfig(num_to_keep=2)
    )
    assert pickle.loads(pickle.dumps(config)) == config
