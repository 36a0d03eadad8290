"""Datasets of trainers: what is refused at once, who gets which rows, and what happens to the rest
when somebody leaves or fails.
"""

import collections
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

import syncline
from syncline import data, train
from syncline.train.datasets import shard

IDS = list(range(20))


def rows_of(name="train", batch_size=3):
    batches = train.get_dataset_shard(name).iter_batches(batch_size=batch_size)
    return [int(value) for batch in batches for value in batch["id"]]


def trainer(function, folder, *, workers=2, **arguments):
    return train.DataParallelTrainer(
        function,
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(
            storage_path=str(folder), name="run", failure_config=arguments.pop("failures", None)
        ),
        **arguments,
    )


# -- refused at once


def test_what_is_no_dataset_is_named():
    with pytest.raises(TypeError, match=r"`datasets\['train'\]` is a list .*instead of a Dataset"):
        train.DataParallelTrainer(print, datasets={"train": [1]})


def test_name_to_split_that_there_is_not_is_refused():
    config = train.DataConfig(datasets_to_split=["tain"])
    with pytest.raises(ValueError, match="'tain'.*'train'"):
        train.DataParallelTrainer(print, datasets={"train": data.range(3)}, dataset_config=config)


def test_unknown_share_names_the_nearest():
    session = SimpleNamespace()
    with pytest.raises(KeyError, match="'trian'.*Did you mean 'train'"):
        shard({"train": data.range(1).iterator()}, "trian", session)
    with pytest.raises(KeyError, match="the trainer was given none"):
        shard({}, "train", session)


# -- who gets what


@pytest.fixture
def local_mode():
    syncline.shutdown()
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def test_program_that_trains_itself_reads_everything(tmp_path):
    read = []
    trainer(
        lambda: read.extend(rows_of()), tmp_path, workers=0, datasets={"train": data.range(20)}
    ).fit()
    assert read == IDS


def test_only_worker_reads_everything_twice(local_mode, tmp_path):
    def loop():
        train.report({"rows": [rows_of(), rows_of()]})

    result = trainer(loop, tmp_path, workers=1, datasets={"train": data.range(20)}).fit()
    assert result.metrics["rows"] == [IDS, IDS]


def test_function_that_makes_a_dataset_is_called_once(local_mode, tmp_path):
    calls = []

    def make():
        calls.append(1)
        return data.range(4)

    def loop():
        train.report({"rows": rows_of()})

    result = trainer(loop, tmp_path, workers=1, datasets={"train": make}).fit()
    assert (result.metrics["rows"], len(calls)) == ([0, 1, 2, 3], 1)


def test_function_that_makes_something_else_fails_the_run(local_mode, tmp_path):
    with pytest.raises(TypeError, match=r"`datasets\['train'\]` is a function that returned a int"):
        trainer(print, tmp_path, workers=1, datasets={"train": lambda: 3}).fit()


def test_execution_options_reach_the_dataset_of_that_name(local_mode):
    options = data.ExecutionOptions(preserve_order=False)
    config = train.DataConfig(execution_options={"train": options})
    (shares,) = config.configure({"train": data.range(4), "valid": data.range(4)}, world_size=1)
    assert not shares["train"].get_context().execution_options.preserve_order
    assert shares["valid"].get_context().execution_options.preserve_order


@pytest.mark.processes
def test_ranks_share_what_is_split_and_read_the_rest_whole(tmp_path):
    def loop():
        rank = train.get_context().get_world_rank()
        first, second, whole = rows_of(), rows_of(), rows_of("valid")
        Path(tmp_path, f"rank-{rank}").write_text(repr((first, second, whole)))

    config = train.DataConfig(datasets_to_split=["train"])
    trainer(
        loop,
        tmp_path,
        datasets={"train": data.range(20), "valid": data.range(5)},
        dataset_config=config,
    ).fit()
    ranks = [eval(Path(tmp_path, f"rank-{rank}").read_text()) for rank in (0, 1)]
    for epoch in (0, 1):
        assert sorted(ranks[0][epoch] + ranks[1][epoch]) == IDS
        assert len(ranks[0][epoch]) == 10
    assert ranks[0][0] == ranks[0][1]
    assert [rank[2] for rank in ranks] == [[0, 1, 2, 3, 4]] * 2


class OnlyRankOne(train.DataConfig):
    """A program's own way to share out."""

    def configure(self, datasets, world_size, worker_handles, worker_node_ids, **kwargs):
        assert len(worker_node_ids) == world_size
        whole = {name: dataset.iterator() for name, dataset in datasets.items()}
        nothing = {name: dataset.limit(0).iterator() for name, dataset in datasets.items()}
        return [nothing, whole]


@pytest.mark.processes
def test_program_may_share_out_in_its_own_way(tmp_path):
    def loop():
        Path(tmp_path, f"rank-{train.get_context().get_world_rank()}").write_text(repr(rows_of()))

    trainer(loop, tmp_path, datasets={"train": data.range(4)}, dataset_config=OnlyRankOne()).fit()
    assert [eval(Path(tmp_path, f"rank-{rank}").read_text()) for rank in (0, 1)] == [
        [],
        [0, 1, 2, 3],
    ]


@pytest.mark.processes
def test_workers_that_hold_every_cpu_do_not_starve_their_input(tmp_path):
    def loop():
        assert syncline.available_resources().get("CPU", 0) == 0
        Path(tmp_path, f"rank-{train.get_context().get_world_rank()}").write_text(repr(rows_of()))

    syncline.shutdown()
    syncline.init(num_cpus=2)
    try:
        doubled = data.range(20).map(lambda row: {"id": row["id"] * 2})
        trainer(loop, tmp_path, datasets={"train": doubled}).fit()
    finally:
        syncline.shutdown()
    ranks = [eval(Path(tmp_path, f"rank-{rank}").read_text()) for rank in (0, 1)]
    assert sorted(ranks[0] + ranks[1]) == [2 * number for number in IDS]


@pytest.mark.processes
def test_rank_that_leaves_its_loop_does_not_hang_the_other(tmp_path):
    def loop():
        rank = train.get_context().get_world_rank()
        epochs = []
        for _ in range(3):
            seen = 0
            for batch in train.get_dataset_shard("train").iter_batches(batch_size=100):
                seen += len(batch["id"])
                if rank == 0:
                    break
            epochs.append(seen)
        Path(tmp_path, f"rank-{rank}").write_text(repr(epochs))

    trainer(loop, tmp_path, datasets={"train": data.range(10_000)}).fit()
    assert eval(Path(tmp_path, "rank-0").read_text()) == [100] * 3
    assert eval(Path(tmp_path, "rank-1").read_text()) == [5_000] * 3


@pytest.mark.processes
def test_rank_that_never_reads_is_named_to_the_one_that_waits_for_it(tmp_path):
    def loop():
        if train.get_context().get_world_rank() == 0:
            rows_of()

    with pytest.raises(
        train.TrainingFailedError,
        match="rank 1 .*does not begin the next pass.*its program is done with the dataset",
    ):
        trainer(loop, tmp_path, datasets={"train": data.range(20)}).fit()


@pytest.mark.processes
def test_run_goes_on_with_its_data_after_a_worker_was_killed(tmp_path):
    def loop():
        rank = train.get_context().get_world_rank()
        mark = Path(tmp_path, "killed")
        rows = []
        for batch in train.get_dataset_shard("train").iter_batches(batch_size=2):
            rows += batch["id"].tolist()
            if rank == 1 and len(rows) == 4 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        Path(tmp_path, f"rank-{rank}").write_text(repr(rows))

    failures = train.FailureConfig(max_failures=1)
    trainer(loop, tmp_path, datasets={"train": data.range(20)}, failures=failures).fit()
    assert (tmp_path / "killed").exists()
    ranks = [eval(Path(tmp_path, f"rank-{rank}").read_text()) for rank in (0, 1)]
    assert collections.Counter(ranks[0] + ranks[1]) == collections.Counter(IDS)


@pytest.mark.processes
def test_error_in_the_data_fails_the_run_with_the_users_line(tmp_path):
    def broken(row):
        return {"id": 1 // (row["id"] - 7)}

    with pytest.raises(train.TrainingFailedError) as caught:
        trainer(rows_of, tmp_path, datasets={"train": data.range(20).map(broken)}).fit()
    assert "ZeroDivisionError" in str(caught.value)
    assert 'return {"id": 1 // (row["id"] - 7)}' in str(caught.value)
