"""Shares of datasets as readers: what they say of their place, and that a restart goes on there, in
the order of a run without one.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncline
from syncline import data, train
from syncline.data.iterate.cursor import CursorError
from syncline.train import datasets
from syncline.train.resume_state import Readers, states_path

ROWS = 60
BATCH = 4


@pytest.fixture(scope="module", autouse=True)
def local_mode() -> Iterator[None]:
    syncline.shutdown()
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


class Session:
    """One rank's, with what shares need of it."""

    def __init__(self, rank: int, world_size: int, saved: train.Checkpoint | None = None) -> None:
        self.world_rank = rank
        self.readers = Readers(rank=rank, world_size=world_size, saved=saved)
        self.preempted = False

    def get_preemption_info(self) -> object | None:
        return object() if self.preempted else None


class Attempt:
    """A worker group, each rank of which is a thread."""

    def __init__(
        self,
        dataset: Any,
        world_size: int,
        saved: train.Checkpoint | None = None,
        config: train.DataConfig | None = None,
    ) -> None:
        config = config or train.DataConfig()
        shares = config.configure({"train": dataset}, world_size=world_size)
        self.sessions = [Session(rank, world_size, saved) for rank in range(world_size)]
        self._shares = shares

    def share(self, rank: int) -> Any:
        return datasets.shard(self._shares[rank], "train", self.sessions[rank])

    def run(self, loop: Callable[[int, Any], Any]) -> list[Any]:
        """What `loop(rank, share)` returned for each rank."""
        results: dict[int, Any] = {}

        def work(rank: int) -> None:
            try:
                results[rank] = loop(rank, self.share(rank))
            except BaseException as error:
                results[rank] = error

        threads = [
            threading.Thread(target=work, args=(rank,), daemon=True)
            for rank in range(len(self.sessions))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for result in results.values():
            if isinstance(result, BaseException):
                raise result
        return [results[rank] for rank in range(len(self.sessions))]

    def save(self, directory: Path) -> train.Checkpoint:
        for session in self.sessions:
            path = directory / states_path(session.world_rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(session.readers.capture())
        return train.Checkpoint(str(directory))


def ids(batch: Any) -> list[int]:
    return [int(value) for value in batch["id"]]


def epoch(share: Any) -> list[int]:
    return [value for batch in share.iter_batches(batch_size=BATCH) for value in ids(batch)]


def stop_after(share: Any, epochs: int, batches: int) -> tuple[list[int], Any]:
    """What was read in whole epochs and some batches, and the loop, in which the program still
    is.
    """
    seen = [value for _ in range(epochs) for value in epoch(share)]
    loop = iter(share.iter_batches(batch_size=BATCH))
    for _ in range(batches):
        seen += ids(next(loop))
    return seen, loop


def shuffled(seed: Any = None) -> Any:
    return data.range(ROWS, override_num_blocks=7).random_shuffle(seed=seed)


# -- orders


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("seed", [None, 3, data.RandomSeedConfig(seed=3)])
@pytest.mark.parametrize("at", [(1, 2), (1, 0)])
def test_order_after_a_restart_is_that_of_a_run_without_one(
    tmp_path: Path, world_size: int, split: bool, seed: Any, at: tuple[int, int]
) -> None:
    """The rest of the epoch, and those after it; seeds that nobody fixed come from before the
    restart.
    """
    config = train.DataConfig(datasets_to_split="all" if split else [])
    first = Attempt(shuffled(seed), world_size, config=config)
    epochs, batches = at

    def undisturbed(rank: int, share: Any) -> list[int]:
        seen, loop = stop_after(share, epochs, batches) if batches else (epoch(share), iter(()))
        states[rank] = first.sessions[rank].readers.capture()
        return [
            *seen,
            -1,
            *(value for batch in loop for value in ids(batch)),
            *epoch(share),
            *epoch(share),
        ]

    states: dict[int, bytes] = {}
    expected = [seen[seen.index(-1) + 1 :] for seen in first.run(undisturbed)]
    for rank, text in states.items():
        (tmp_path / states_path(rank)).parent.mkdir(exist_ok=True)
        (tmp_path / states_path(rank)).write_bytes(text)
    again = Attempt(
        shuffled(seed), world_size, saved=train.Checkpoint(str(tmp_path)), config=config
    )
    rest = 3 if batches else 2
    assert (
        again.run(lambda rank, share: [value for _ in range(rest) for value in epoch(share)])
        == expected
    )


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3), (3, 2)])
def test_another_number_of_ranks_sees_each_sample_once(
    tmp_path: Path, before: int, after: int
) -> None:
    first = Attempt(shuffled(), before)
    seen = first.run(lambda rank, share: stop_after(share, 0, 2))
    saved = first.save(tmp_path)
    later = Attempt(shuffled(), after, saved=saved).run(
        lambda rank, share: (epoch(share), epoch(share))
    )
    rest = [value for own, _ in later for value in own]
    got = [value for own, _ in seen for value in own]
    assert len(set(rest)) == len(rest)
    assert not set(rest) & set(got)
    assert ROWS - len(got) - len(rest) < after  # dropped, so that all ranks get equally many
    assert len({value for _, own in later for value in own}) > ROWS - after


def test_whole_datasets_go_on_with_those_of_a_rank_that_there_was(tmp_path: Path) -> None:
    config = train.DataConfig(datasets_to_split=[])
    first = Attempt(shuffled(), 2, config=config)
    seen = first.run(lambda rank, share: stop_after(share, 0, 1 + rank))
    saved = first.save(tmp_path)
    rests = Attempt(shuffled(), 3, saved=saved, config=config).run(lambda rank, share: epoch(share))
    for rank, rest in enumerate(rests):
        assert sorted([*seen[rank % 2][0], *rest]) == list(range(ROWS))


# -- ranks that are not at the same place


def test_ranks_that_have_read_unequally_go_on_each_where_it_was(tmp_path: Path) -> None:
    first = Attempt(shuffled(), 2)
    seen = first.run(lambda rank, share: stop_after(share, 0, 1 + 3 * rank))
    saved = first.save(tmp_path)
    rests = Attempt(shuffled(), 2, saved=saved).run(lambda rank, share: epoch(share))
    assert [len(rest) for rest in rests] == [ROWS // 2 - BATCH, ROWS // 2 - 4 * BATCH]
    assert sorted(
        value for (own, _), rest in zip(seen, rests, strict=True) for value in [*own, *rest]
    ) == list(range(ROWS))


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_rank_that_has_ended_the_epoch_before_has_read_nothing_of_the_next(
    tmp_path: Path, world_size: int
) -> None:
    first = Attempt(shuffled(), 2)
    began = threading.Event()

    def read(rank: int, share: Any) -> tuple[list[int], Any]:
        epoch(share)
        if rank == 0:
            (tmp_path / states_path(0)).parent.mkdir()
            (tmp_path / states_path(0)).write_bytes(first.sessions[0].readers.capture())
        seen, loop = stop_after(share, 0, 1 + rank)
        if rank == 1:
            (tmp_path / states_path(1)).write_bytes(first.sessions[1].readers.capture())
            began.set()
        return (seen if rank == 1 else []), loop

    seen = first.run(read)
    assert began.is_set()
    rests = Attempt(shuffled(), world_size, saved=train.Checkpoint(str(tmp_path))).run(
        lambda rank, share: epoch(share)
    )
    assert sorted([*seen[1][0], *(value for rest in rests for value in rest)]) == list(range(ROWS))


# -- what a share says of its place


def state_of(attempt: Attempt) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(attempt.sessions[0].readers.capture())["readers"][
        "dataset 'train'"
    ]
    return state


def test_place_is_told_while_the_program_is_in_its_loop() -> None:
    attempt = Attempt(shuffled(), 1)
    share = attempt.share(0)
    assert state_of(attempt) == {}
    seen, loop = stop_after(share, 1, 3)
    assert {key: state_of(attempt)[key] for key in ("epoch", "ended", "place")} == {
        "epoch": 1,
        "ended": False,
        "place": "12 rows",
    }
    assert len(list(loop)) == 12
    assert state_of(attempt)["ended"]


def test_place_counts_the_rows_of_all_ranks(tmp_path: Path) -> None:
    first = Attempt(shuffled(), 2)
    keep = first.run(lambda rank, share: stop_after(share, 0, 2))
    assert state_of(first)["place"] == "16 rows"
    again = Attempt(shuffled(), 1, saved=first.save(tmp_path))
    keep += again.run(lambda rank, share: stop_after(share, 0, 1))
    assert state_of(again)["place"] == "20 rows"


def test_a_loop_that_is_left_ends_its_epoch() -> None:
    attempt = Attempt(shuffled(), 1)
    for _ in attempt.share(0).iter_batches(batch_size=BATCH):
        break
    assert state_of(attempt)["ended"]


def test_a_loop_that_is_left_before_a_preemption_goes_on_after_it(tmp_path: Path) -> None:
    first = Attempt(shuffled(), 1)
    seen = []
    for batch in first.share(0).iter_batches(batch_size=BATCH):
        seen += ids(batch)
        first.sessions[0].preempted = True
        break
    again = Attempt(shuffled(), 1, saved=first.save(tmp_path))
    assert sorted([*seen, *epoch(again.share(0))]) == list(range(ROWS))


def test_a_place_that_was_loaded_is_saved_again_before_the_first_pass(tmp_path: Path) -> None:
    first = Attempt(shuffled(), 2)
    seen = first.run(lambda rank, share: stop_after(share, 0, 2))
    second = Attempt(shuffled(), 3, saved=first.save(tmp_path / "1"))
    for rank in range(3):
        second.share(rank)
    assert state_of(second)["ended"] is False
    rests = Attempt(shuffled(), 2, saved=second.save(tmp_path / "2")).run(
        lambda rank, share: epoch(share)
    )
    assert sorted(
        value for (own, _), rest in zip(seen, rests, strict=True) for value in [*own, *rest]
    ) == list(range(ROWS))


def test_a_share_is_counted_in_once_and_its_waiting_counts() -> None:
    attempt = Attempt(shuffled(), 1)
    assert attempt.share(0) is attempt.share(0)
    epoch(attempt.share(0))
    assert attempt.sessions[0].readers.waited_s > 0


# -- other datasets


def test_another_dataset_in_the_middle_of_a_pass_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    first = Attempt(shuffled(), 1)
    keep = stop_after(first.share(0), 0, 1)
    again = Attempt(data.range(5), 1, saved=first.save(tmp_path))
    with pytest.raises(
        CursorError,
        match=r"dataset 'train' cannot resume.*epoch 0.*another dataset.*"
        r"DataConfig\(resume=False\)",
    ):
        again.share(0)
    del keep


def test_another_dataset_between_two_passes_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Attempt(shuffled(), 1)
    epoch(first.share(0))
    again = Attempt(data.range(5), 1, saved=first.save(tmp_path))
    assert epoch(again.share(0)) == [0, 1, 2, 3, 4]
    assert "dataset 'train' has changed since the last checkpoint" in caplog.text


class Stateful:
    """Something of a program's own."""

    def __init__(self, at: Any = 0) -> None:
        self.at = at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Foreign(train.DataConfig):
    def configure(self, datasets: Any, world_size: int, *_: Any, **__: Any) -> Any:
        return [{name: datasets[name] for name in datasets} for _ in range(world_size)]


def test_what_a_program_gives_out_itself_goes_on_if_it_has_states(tmp_path: Path) -> None:
    first = Attempt(Stateful(), 1, config=Foreign())
    first.share(0).at = 7
    again = Attempt(Stateful(), 1, saved=first.save(tmp_path), config=Foreign())
    assert again.share(0).at == 7
    assert Attempt([1, 2], 1, saved=first.save(tmp_path), config=Foreign()).share(0) == [1, 2]


def test_a_state_that_json_cannot_hold_is_named() -> None:
    attempt = Attempt(Stateful(at=object()), 1, config=Foreign())
    attempt.share(0)
    with pytest.raises(
        TypeError,
        match=r"The state of dataset 'train', a Stateful, cannot be saved.*state_dict\(\)",
    ):
        attempt.sessions[0].readers.capture()


# -- random numbers


def test_random_states_come_back_as_the_first_pass_begins_and_functions_do_not_move_them(
    tmp_path: Path,
) -> None:
    def augment(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "noise": np.random.rand(len(batch["id"])) + random.random()}

    def steps(loop: Any) -> list[tuple[float, ...]]:
        return [
            (random.random(), float(np.random.rand()), *map(float, batch["noise"]))
            for batch in loop
        ]

    def dataset() -> Any:
        return data.range(ROWS, override_num_blocks=7).map_batches(augment, batch_size=3)

    first = Attempt(dataset(), 1)
    loop = iter(first.share(0).iter_batches(batch_size=BATCH))
    for _ in range(4):
        next(loop)
        random.random()
    saved = first.save(tmp_path)
    expected = [*steps(loop), *steps(first.share(0).iter_batches(batch_size=BATCH))]
    random.seed(1)
    np.random.seed(2)
    again = Attempt(dataset(), 1, saved=saved).share(0)
    assert [
        *steps(again.iter_batches(batch_size=BATCH)),
        *steps(again.iter_batches(batch_size=BATCH)),
    ] == expected
