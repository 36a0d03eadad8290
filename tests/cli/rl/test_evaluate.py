"""`rl evaluate`: episodes of a checkpoint, and their video."""

import json

import pytest

from syncline.rl.algorithms.ppo import PPOConfig

pytest.importorskip("gymnasium")


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """A storage path with the run "cart" and its checkpoint."""
    path = tmp_path_factory.mktemp("evaluate")
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .reporting(record=str(path / "cart"))
    ).build_algo()
    algo.train()
    algo.save_to_path(f"{algo.run_path}/checkpoint_000001")
    algo.stop()
    return path


def test_episodes_are_listed_with_their_mean(syncline_command, storage):
    path = str(storage / "cart" / "checkpoint_000001")
    done = syncline_command("rl", "evaluate", path, "--episodes", "3", "--json", "--seed", "5")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    returns = [each["return"] for each in found["episodes"]]
    assert len(returns) == 3
    assert found["return_mean"] == pytest.approx(sum(returns) / 3)
    assert all(each["return"] == each["length"] > 5 for each in found["episodes"])
    again = syncline_command("rl", "evaluate", path, "--episodes", "3", "--json", "--seed", "5")
    assert json.loads(again.stdout) == found


def test_a_run_stands_for_its_latest_checkpoint(syncline_command, storage):
    done = syncline_command(
        "rl", "evaluate", "cart", "--episodes", "1", "--storage-path", str(storage)
    )
    assert done.exit_code == 0, done.output
    assert "PPO: return" in done.output
    assert sorted(each.name for each in storage.iterdir()) == ["cart"]  # it leaves no record


def test_a_video_is_written(syncline_command, storage, tmp_path):
    pytest.importorskip("pygame")
    pytest.importorskip("PIL.Image")
    path, video = str(storage / "cart" / "checkpoint_000001"), tmp_path / "out.gif"
    done = syncline_command("rl", "evaluate", path, "--episodes", "1", "--render", str(video))
    assert done.exit_code == 0, done.output
    assert video.read_bytes()[:3] == b"GIF"
    assert str(video) in done.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere",), 1, "is not a checkpoint"),
        (("nowhere", "--render", "x.avi"), 2, ".mp4 or .gif"),
    ],
)
def test_mistakes_are_told(syncline_command, arguments, code, words):
    done = syncline_command("rl", "evaluate", *arguments)
    assert done.exit_code == code
    assert words in done.stderr
