"""From runners to files and back: every complete episode once, step for step."""

import gymnasium as gym
import numpy as np
import pytest

import syncline
from syncline import data
from syncline.rl.algorithms.bc import BCConfig
from syncline.rl.columns.names import Columns
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.offline.offline_data import OfflineData
from syncline.rl.offline.prelearner import OfflinePreLearner, flattened, nested, steps_of
from syncline.rl.runners.multi_agent_env_runner import MultiAgentEnvRunner
from syncline.rl.runners.single_agent_env_runner import SingleAgentEnvRunner
from tests.rl.runners.test_multi_agent_env_runner import Config as AgentsConfig
from tests.rl.runners.test_multi_agent_env_runner import Relay
from tests.rl.runners.test_single_agent_env_runner import config


@pytest.fixture(scope="module")
def engine():
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def recorded(where, episodes=9, **options):
    """Record episodes; return what the runner reported of them."""
    runner = SingleAgentEnvRunner(
        config=config(num_envs_per_env_runner=2).offline_data(output=str(where), **options)
    )
    sample = runner.sample_episodes(episodes)
    runner.stop()
    return sample.episodes


def folders(where):
    return sorted(str(each) for each in (where / "counter").iterdir())


@pytest.mark.processes
def test_every_counted_episode_is_a_row_and_comes_back(engine, tmp_path):
    counted = recorded(tmp_path, output_max_rows_per_file=4)
    assert len(folders(tmp_path)) == 3  # 4, 4 and 1
    rows = data.read_parquet(folders(tmp_path)).take_all()
    steps = OfflinePreLearner(config=BCConfig().offline_data(input_="", input_read_episodes=True))(
        {"item": [row["item"] for row in rows]}
    )
    lengths = sorted(np.unique(steps[Columns.EPS_ID], return_counts=True)[1])
    assert lengths == sorted(episode.length for episode in counted)
    assert steps[Columns.REWARDS].sum() == sum(episode.episode_return for episode in counted)
    np.testing.assert_array_equal(steps[Columns.NEXT_OBS], steps[Columns.OBS] + 1)
    ends = steps[Columns.TERMINATEDS] | steps[Columns.TRUNCATEDS]
    assert ends.sum() == len(counted)
    np.testing.assert_array_equal(steps[Columns.REWARDS], steps[Columns.ACTIONS])


@pytest.mark.processes
def test_episodes_of_several_agents_are_in_folders_of_their_modules(engine, tmp_path):
    config = (
        AgentsConfig()
        .environment(Relay)
        .multi_agent(policies={"fast", "slow"}, policy_mapping_fn=lambda agent, episode: agent)
        .offline_data(output=str(tmp_path))
    )
    runner = MultiAgentEnvRunner(config=config)
    runner.sample_episodes(3)
    runner.stop()
    prelearner = OfflinePreLearner(
        config=BCConfig().offline_data(input_="", input_read_episodes=True)
    )
    for module_id, steps in (("fast", 8), ("slow", 2)):
        files = [str(each) for each in (tmp_path / "relay" / module_id).iterdir()]
        rows = data.read_parquet(files).take_all()
        columns = prelearner({"item": [row["item"] for row in rows]})
        assert len(rows) == 3
        assert len(columns[Columns.REWARDS]) == 3 * steps
        assert columns[Columns.TERMINATEDS].sum() == 3
        assert columns[Columns.OBS].max() == {"fast": 7, "slow": 3}[module_id]


@pytest.mark.processes
def test_a_row_per_step_can_be_read_without_the_library(engine, tmp_path):
    counted = recorded(tmp_path, output_write_episodes=False)
    rows = data.read_parquet(folders(tmp_path)).take_all()
    assert len(rows) == sum(episode.length for episode in counted)
    assert {"eps_id", "obs", "new_obs", "actions", "rewards"} <= set(rows[0])
    assert {row["eps_id"] for row in rows if row["terminateds"] or row["truncateds"]} == {
        row["eps_id"] for row in rows
    }


@pytest.mark.processes
@pytest.mark.parametrize("materialized", [True, False])
def test_each_pass_has_every_step_once_in_another_order(engine, tmp_path, materialized):
    counted = recorded(tmp_path, episodes=20)
    offline = OfflineData(
        BCConfig()
        .offline_data(
            input_=folders(tmp_path), input_read_episodes=True, materialize_mapped_data=materialized
        )
        .debugging(seed=1)
    )
    total = sum(episode.length for episode in counted)
    first, second = (
        np.concatenate([batch[Columns.OBS] for batch in offline.one_pass(16)]) for _ in range(2)
    )
    assert len(first) == len(second) == total
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.sort(first, axis=0), np.sort(second, axis=0))
    assert set(offline.sample(16)) >= {Columns.OBS, Columns.ACTIONS, Columns.NEXT_OBS}


def test_columns_under_other_names_are_renamed():
    prelearner = OfflinePreLearner(
        config=BCConfig().offline_data(input_="", input_read_schema={"obs": "o_t", "actions": "a"})
    )
    rows = prelearner({"o_t": np.zeros((2, 3)), "a": np.ones(2), "more": np.ones(2)})
    assert sorted(rows) == ["actions", "more", "obs"]
    with pytest.raises(ValueError, match=r"need the columns \['obs'\].*input_read_schema"):
        prelearner({"o": np.zeros((2, 3)), "a": np.ones(2)})


def test_missing_episodes_are_named():
    prelearner = OfflinePreLearner(
        config=BCConfig().offline_data(input_="", input_read_episodes=True)
    )
    with pytest.raises(ValueError, match=r"no column 'item'.*they have \['obs'\]"):
        prelearner({"obs": np.zeros(1)})


def test_nested_observations_survive_as_columns():
    space = gym.spaces.Dict({"a": gym.spaces.Box(0, 1, (2,)), "b": gym.spaces.Discrete(3)})
    episode = SingleAgentEpisode(
        observations=[{"a": np.full(2, t), "b": t} for t in range(3)],
        actions=[(0, np.zeros(1)), (1, np.ones(1))],
        rewards=[1.0, 2.0],
        observation_space=space,
        terminated=True,
        len_lookback_buffer=0,
    )
    steps = steps_of(episode)
    assert {"obs/a", "obs/b", "new_obs/a", "actions/0", "actions/1"} <= set(steps)
    trees = nested(steps)
    np.testing.assert_array_equal(trees["new_obs"]["a"], [[1, 1], [2, 2]])
    np.testing.assert_array_equal(trees["actions"][0], [0, 1])
    assert flattened("obs", trees["obs"]).keys() == {"obs/a", "obs/b"}
    assert steps[Columns.TERMINATEDS].tolist() == [False, True]


def test_unknown_readers_and_missing_data_are_named(tmp_path):
    with pytest.raises(ValueError, match="is not a reader .*Did you mean 'read_parquet'"):
        OfflineData(BCConfig().offline_data(input_="x", input_read_method="read_parqet"))
    with pytest.raises(ValueError, match=r"offline_data\(input_=…\)"):
        BCConfig().environment("CartPole-v1").validate()
