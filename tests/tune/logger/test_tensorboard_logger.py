"""Files for TensorBoard, read with tensorboardX's own messages and checksums."""

import os
import subprocess
import sys

import numpy as np
import pytest
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

from syncline.tune.logger import TBXLoggerCallback
from tests.event_files import events
from tests.tune.logger.logged_trials import Search, make_trial


def content(trial):
    """The bytes of all event files of a trial, in the order in which boards read them, and how many
    there are.
    """
    names = sorted(
        name for name in os.listdir(trial.local_path) if name.startswith("events.out.tfevents.")
    )
    return b"".join(open(os.path.join(trial.local_path, name), "rb").read() for name in names), len(
        names
    )


def scalars(trial):
    """{tag: [(step, value)]}"""
    found = {}
    for event in events(content(trial)[0]):
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def hparams(trial):
    return [
        HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for event in events(content(trial)[0])
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "hparams"
    ]


@pytest.fixture
def search():
    return Search(TBXLoggerCallback(clock=lambda: 1700000000.5))


def test_numbers_are_scalars_under_rays_tags(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(
        trial,
        [1, 2],
        eval={"top1": np.float32(0.5)},
        count=np.int64(7),
        done=False,
        note="x",
        bad=float("nan"),
        pid=5,
    )
    assert scalars(trial) == {
        "ray/tune/loss": [(1, 1.0), (2, 2.0)],
        "ray/tune/eval/top1": [(1, 0.5), (2, 0.5)],
        "ray/tune/count": [(1, 7.0), (2, 7.0)],
        "ray/tune/done": [(1, 0.0), (2, 0.0)],
    }


def test_a_file_begins_with_its_version_and_has_the_time(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1])
    first, *others = events(content(trial)[0])
    assert first.file_version == "brain.Event:2"
    assert {event.wall_time for event in others} == {1700000000.5}


def test_steps_are_timesteps_where_they_are_reported(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [3], timesteps_total=2**40)
    assert scalars(trial)["ray/tune/loss"] == [(2**40, 3.0)]


@pytest.mark.parametrize(
    ("value", "written"), [(1e300, np.inf), (-1e300, -np.inf), (np.inf, np.inf), (10**400, None)]
)
def test_numbers_too_large_for_a_float_are_infinite(search, tmp_path, value, written):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1], big=value)
    assert scalars(trial)["ray/tune/big"] == [(1, np.inf if written is None else written)]


def test_tags_have_no_characters_that_tensorboard_refuses(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1], **{"top 1 (%)": 1.0})
    assert "ray/tune/top_1____" in scalars(trial)


def test_lists_and_arrays_become_histograms(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1], scores=[1.0, 2.0, 2.0, 4.0], weights=np.eye(2), empty=[])
    found = {
        value.tag: value.histo
        for event in events(content(trial)[0])
        for value in event.summary.value
        if value.HasField("histo")
    }
    assert set(found) == {"ray/tune/scores", "ray/tune/weights"}
    scores = found["ray/tune/scores"]
    assert (scores.min, scores.max, scores.num, scores.sum, scores.sum_squares) == (1, 4, 4, 9, 25)
    assert sum(scores.bucket) == 4
    assert len(scores.bucket) == len(scores.bucket_limit)
    assert scores.bucket_limit[-1] == 4


def test_images_are_written_by_tensorboardx(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1], picture=np.zeros((3, 4, 5), dtype=np.uint8))
    images = [
        value
        for event in events(content(trial)[0])
        for value in event.summary.value
        if value.HasField("image")
    ]
    assert [(one.tag, one.image.height, one.image.width) for one in images] == [
        ("ray/tune/picture", 4, 5)
    ]


def test_what_has_no_form_is_told_once(search, tmp_path, caplog):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1, 2], names=["a", "b"])
    assert scalars(trial)["ray/tune/loss"] == [(1, 1.0), (2, 2.0)]
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        "ray/tune/names is not in the files for TensorBoard"
    ]


@pytest.mark.parametrize(("end", "status"), [("complete", 1), ("fail", 2)])
def test_hyperparameters_are_written_when_a_trial_ends(search, tmp_path, end, status):
    trial = make_trial(
        tmp_path, lr=np.float32(0.5), layers=3, deep=True, act="relu", sizes=[1, 2], nothing=None
    )
    search.start(trial)
    search.report(trial, [1])
    assert hparams(trial) == []
    getattr(search, end)(trial)
    experiment, start, finish = hparams(trial)
    kinds = {info.name: info.type for info in experiment.experiment.hparam_infos}
    assert kinds == {"lr": 3, "layers": 3, "deep": 2, "act": 1, "sizes": 1}
    assert [info.name.tag for info in experiment.experiment.metric_infos] == ["ray/tune/loss"]
    values = start.session_start_info.hparams
    assert (
        values["lr"].number_value,
        values["layers"].number_value,
        values["deep"].bool_value,
    ) == (0.5, 3, True)
    assert (values["act"].string_value, values["sizes"].string_value) == ("relu", "[1, 2]")
    assert finish.session_end_info.status == status


def test_a_trial_without_results_or_parameters_has_no_hyperparameters(search, tmp_path):
    with_params, without = make_trial(tmp_path, "a", lr=1), make_trial(tmp_path, "b")
    search.start(with_params)
    search.start(without)
    search.report(without, [1])
    search.complete(with_params)
    search.complete(without)
    assert hparams(with_params) == hparams(without) == []


def starts(trial):
    return [event.step for event in events(content(trial)[0]) if event.session_log.status == 1]


def test_each_start_says_from_which_step_the_earlier_values_are_void(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1, 2, 3])
    search.start(trial, iteration=2)  # after a failure
    search.report(trial, [3])
    assert starts(trial) == [1, 3]
    assert content(trial)[1] == 1


def test_a_restored_search_writes_a_file_that_is_read_after_the_earlier_one(tmp_path):
    trial = make_trial(tmp_path)
    search = Search(TBXLoggerCallback(clock=lambda: 1700000000.5))
    search.start(trial)
    search.report(trial, [1, 2])
    restored = Search(TBXLoggerCallback(clock=lambda: 1700000000.6))
    restored.start(trial, iteration=1)
    restored.report(trial, [2])
    assert content(trial)[1] == 2
    assert starts(trial) == [1, 2]


def test_results_reach_another_place_at_the_end(tmp_path):
    trial, search = make_trial(tmp_path, elsewhere=True, lr=1), Search(TBXLoggerCallback())
    search.start(trial)
    search.report(trial, [1])
    search.complete(trial)
    search.end()
    here = make_trial(tmp_path)
    assert scalars(here)["ray/tune/loss"] == [(1, 1.0)]
    assert len(hparams(here)) == 3


def test_numbers_do_not_load_tensorboardx_nor_torch(tmp_path):
    program = """
import sys
from syncline.runs import event_file
from syncline.tune.logger import TBXLoggerCallback
event_file.record(event_file.summary_event(1.0, 1, event_file.scalar("a", 1.0)))
print(*[name for name in ("torch", "tensorboardX", "pandas") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
