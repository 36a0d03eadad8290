"""Incremental checkpoints of replay buffers: what is written, and that draws go on exactly."""

import os
import shutil

import numpy as np
import pytest

from syncline.rl.buffers.checkpoints import ReplayBuffers
from syncline.rl.buffers.replay_columns import ReplayColumns
from tests.rl.buffers.test_replay_columns import Simulation


def buffers(capacity=400, alpha=0.6):
    def create(module_id, width):
        if module_id not in made:
            made[module_id] = ReplayColumns(capacity, num_envs=width, seed=3, alpha=alpha)
        return made[module_id]

    made = ReplayBuffers(create)
    create("m", 2)
    return made


def fill(made, world, times):
    for _ in range(times):
        made["m"].add(world.fragment(5))
        batch = made["m"].sample(8, n_step=2)
        made["m"].update_priorities(batch["batch_indexes"], np.abs(batch["rewards"]))


def assert_same_draws(one, other):
    for _ in range(3):
        first, second = (each["m"].sample(64, n_step=3, beta=0.4) for each in (one, other))
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])


def segments(path):
    return {name for name in os.listdir(path) if name.startswith("rows-")}


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_restored_buffers_draw_the_same_also_after_wrapping_around(alpha, tmp_path):
    world, made = Simulation(2, seed=1), buffers(alpha=alpha)
    for number in range(25):  # 250 steps and more; each ring has 200 rows
        fill(made, world, 3)
        path = made.save_to_path(tmp_path / f"{number}")
        if number % 6 == 0:
            restored = buffers(alpha=alpha)
            restored.restore_from_path(path)
            for both in (made, restored):
                assert both["m"].num_steps == made["m"].num_steps
            whole = buffers(alpha=alpha)
            whole.set_state(made.get_state())
            assert_same_draws(restored, whole)


def test_a_checkpoint_writes_what_is_new_and_links_the_rest(tmp_path):
    world, made = Simulation(2, seed=1), buffers(capacity=10_000)
    fill(made, world, 100)
    first = made.save_to_path(tmp_path / "1")
    fill(made, world, 2)
    second = made.save_to_path(tmp_path / "2")
    (large,) = segments(first)
    (new,) = segments(second) - {large}
    assert os.path.samefile(tmp_path / "1" / large, tmp_path / "2" / large)
    sizes = [os.path.getsize(tmp_path / "2" / name) for name in (new, large)]
    assert sizes[0] < 0.1 * sizes[1]


def test_small_segments_are_joined(tmp_path):
    world, made = Simulation(2, seed=1), buffers(capacity=10_000)
    for number in range(64):
        fill(made, world, 1)
        path = made.save_to_path(tmp_path / f"{number}")
    assert len(segments(path)) <= 8


def test_checkpoints_do_not_need_earlier_ones(tmp_path):
    world, made = Simulation(2, seed=1), buffers(capacity=10_000)
    fill(made, world, 50)
    first = made.save_to_path(tmp_path / "1")
    fill(made, world, 2)
    shutil.rmtree(first)
    second = made.save_to_path(tmp_path / "2")
    moved = shutil.move(second, tmp_path / "moved")
    restored = buffers(capacity=10_000)
    restored.restore_from_path(moved)
    assert_same_draws(restored, made)


def test_a_restored_buffer_links_to_the_files_that_it_came_from(tmp_path):
    world, made = Simulation(2, seed=1), buffers(capacity=10_000)
    fill(made, world, 50)
    first = made.save_to_path(tmp_path / "1")
    restored = buffers(capacity=10_000)
    restored.restore_from_path(first)
    fill(restored, world, 1)
    second = restored.save_to_path(tmp_path / "2")
    assert segments(first) < segments(second)
    again = buffers(capacity=10_000)
    again.restore_from_path(second)
    assert_same_draws(again, restored)


def test_missing_files_and_other_capacities_are_named(tmp_path):
    made = buffers()
    fill(made, Simulation(2, seed=1), 5)
    path = made.save_to_path(tmp_path / "1")
    with pytest.raises(ValueError, match=r"has 400 rows .* this one has 300"):
        buffers(capacity=300).restore_from_path(path)
    for name in segments(path):
        os.remove(os.path.join(path, name))
    with pytest.raises(FileNotFoundError, match="the replay buffer is incomplete"):
        buffers().restore_from_path(path)
