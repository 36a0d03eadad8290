"""Configuration: defaults, derived properties, and the error for every mistake."""

import warnings

import pytest

from syncline import tune
from syncline.train.config import (
    CheckpointConfig,
    DataConfig,
    FailureConfig,
    LoggingConfig,
    ScalingConfig,
    ValidationConfig,
    ValidationTaskConfig,
)


class TestScalingConfig:
    def test_a_worker_gets_one_cpu_by_default(self):
        config = ScalingConfig()
        assert config.bundle() == {"CPU": 1}
        assert (
            config.num_workers,
            config.min_workers,
            config.max_workers,
            config.elasticity_enabled,
        ) == (1, 1, 1, False)

    def test_use_gpu_gives_one_gpu_and_no_cpu(self):
        config = ScalingConfig(num_workers=3, use_gpu=True)
        assert config.bundle() == {"GPU": 1}
        assert config.total_resources == {"GPU": 3}
        assert (
            config.num_cpus_per_worker,
            config.num_gpus_per_worker,
            config.num_tpus_per_worker,
        ) == (0, 1, 0)

    def test_use_gpu_adds_a_gpu_to_given_resources(self):
        assert ScalingConfig(use_gpu=True, resources_per_worker={"CPU": 2}).bundle() == {
            "CPU": 2,
            "GPU": 1,
        }
        assert (
            ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 0.5}).num_gpus_per_worker
            == 0.5
        )

    def test_use_tpu_gives_one_tpu(self):
        assert ScalingConfig(use_tpu=True, topology="2x2").num_tpus_per_worker == 1

    def test_zero_amounts_are_dropped_and_the_accelerator_type_is_added(self):
        config = ScalingConfig(
            resources_per_worker={"CPU": 0, "GPU": 0, "disk": 2}, accelerator_type="H100"
        )
        assert config.bundle() == {"disk": 2, "accelerator_type:H100": 0.001}
        assert config.additional_resources_per_worker == {"disk": 2, "accelerator_type:H100": 0.001}

    def test_an_elastic_group_counts_its_maximum(self):
        config = ScalingConfig(num_workers=(2, 4))
        assert (config.min_workers, config.max_workers, config.elasticity_enabled) == (2, 4, True)
        assert config.total_resources == {"CPU": 4}

    def test_zero_workers_hold_nothing(self):
        assert ScalingConfig(num_workers=0).total_resources == {}

    def test_parameters_keep_their_positions(self):
        with pytest.warns(DeprecationWarning, match="trainer_resources"):
            config = ScalingConfig({"CPU": 0}, 2, True, {"GPU": 1}, "SPREAD", "A10G", {"zone": "a"})
        assert (
            config.num_workers,
            config.use_gpu,
            config.placement_strategy,
            config.label_selector,
        ) == (2, True, "SPREAD", {"zone": "a"})

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"num_workers": -1}, "num_workers=-1.*negative"),
            ({"num_workers": 1.5}, "num_workers=1.5"),
            ({"num_workers": True}, "num_workers=True"),
            ({"num_workers": "2"}, "num_workers='2'"),
            ({"num_workers": [1, 2]}, "elastic group"),
            ({"num_workers": (1, 2, 3)}, "elastic group"),
            ({"num_workers": (4, 2)}, "minimum 4 is above the maximum 2"),
            ({"num_workers": (0, 2)}, "minimum of 1"),
            ({"num_workers": (-1, 2)}, "minimum of 1"),
            ({"resources_per_worker": {"GPU": 1}}, "use_gpu=True"),
            ({"resources_per_worker": {"TPU": 1}}, "use_tpu=True"),
            ({"use_gpu": True, "resources_per_worker": {"GPU": 0}}, "no GPU"),
            ({"use_gpu": True, "use_tpu": True}, "exclude"),
            ({"use_gpu": 2}, "use_gpu=2"),
            ({"resources_per_worker": {"CPU": -1}}, "CPU"),
            ({"resources_per_worker": {"CPU": "2"}}, "'2'"),
            ({"resources_per_worker": {"CPU": float("nan")}}, "nan"),
            ({"resources_per_worker": 2}, "resources_per_worker=2"),
            ({"placement_strategy": "NEAR"}, "'NEAR'.*STRICT_PACK"),
            ({"accelerator_type": 5}, "accelerator_type=5"),
            ({"num_workers": 2, "label_selector": [{"a": "b"}]}, "1 items.*2 workers"),
            ({"label_selector": "a=b"}, "label_selector='a=b'"),
            ({"elastic_resize_monitor_interval_s": 0}, "elastic_resize_monitor_interval_s=0"),
        ],
    )
    def test_a_mistake_is_refused_with_its_value(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            ScalingConfig(**arguments)

    def test_the_deprecation_warning_points_at_the_program(self):
        with pytest.warns(DeprecationWarning, match="trainer_resources") as caught:
            ScalingConfig(trainer_resources={"CPU": 1})
        assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (FailureConfig, {"max_failures": -2}),
        (FailureConfig, {"max_failures": 1.5}),
        (FailureConfig, {"preemption_grace_s": -1}),
        (FailureConfig, {"relax_collectives_on_preemption": "no"}),
        (CheckpointConfig, {"num_to_keep": 0}),
        (CheckpointConfig, {"num_to_keep": -1}),
        (CheckpointConfig, {"num_to_keep": "2"}),
        (CheckpointConfig, {"checkpoint_score_order": "best"}),
        (CheckpointConfig, {"checkpoint_score_attribute": 3}),
        (LoggingConfig, {"log_level": "LOUD"}),
        (LoggingConfig, {"log_level": 10}),
        (ValidationTaskConfig, {"timeout_s": 0}),
        (ValidationTaskConfig, {"fn_kwargs": [1]}),
        (ValidationConfig, {"fn": 3}),
        (ValidationConfig, {"fn": print, "task_config": {}}),
        (ValidationConfig, {"fn": print, "ray_remote_kwargs": 1}),
    ],
)
def test_a_bad_value_is_refused_by_its_name_and_value(kind, arguments):
    name, value = list(arguments.items())[-1]
    with pytest.raises(ValueError) as caught:
        kind(**arguments)
    assert f"`{name}={value!r}`" in str(caught.value)


def test_the_log_level_is_read_in_any_case():
    assert LoggingConfig(log_level="debug").log_level == "DEBUG"


def test_fail_fast_is_deprecated():
    with pytest.warns(DeprecationWarning, match="fail_fast"):
        FailureConfig(fail_fast=True)


def test_a_validation_config_has_a_default_task_config():
    assert ValidationConfig(fn=print).task_config == ValidationTaskConfig(
        fn_kwargs=None, timeout_s=None
    )


def test_whether_data_resumes_is_a_keyword_and_yes_or_no():
    assert DataConfig().resume
    assert not DataConfig(resume=False).resume
    with pytest.raises(ValueError, match="`resume='no'` must be True or False"):
        DataConfig(resume="no")
    with pytest.raises(TypeError):
        DataConfig("all", None, True, False)


@pytest.mark.parametrize("option", [{"checkpoint_frequency": 2}, {"checkpoint_at_end": True}])
def test_how_often_to_save_is_ignored_with_a_warning(option):
    with pytest.warns(DeprecationWarning, match="ignored by trainers"):
        CheckpointConfig(**option)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CheckpointConfig(num_to_keep=1)
        tune.CheckpointConfig(**option)
