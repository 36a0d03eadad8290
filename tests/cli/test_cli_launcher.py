"""The launcher's commands: handed over to Ray's of the same name with everything that was given,
and its exit code passed on.
"""

import json

import pytest


@pytest.fixture
def cluster_yaml(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text("cluster_name: test\n")
    return str(file)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("up", ["-y", "--no-restart"]),
        ("down", ["--yes"]),
        ("exec", ["python train.py --epochs 3", "--tmux"]),
        ("attach", ["--screen"]),
        ("rsync-up", ["a", "b", "--all-nodes"]),
        ("rsync-down", ["a", "b"]),
    ],
)
def test_command_line_is_handed_over_as_it_is(
    syncline_command, fake_ray, cluster_yaml, name, arguments
):
    record = fake_ray()
    done = syncline_command(name, cluster_yaml, *arguments)
    assert done.exit_code == 0, done.output
    assert [json.loads(line) for line in record.read_text().splitlines()] == [
        [name, cluster_yaml, *arguments]
    ]


def test_flags_may_come_before_the_file(syncline_command, fake_ray, cluster_yaml):
    record = fake_ray()
    assert syncline_command("up", "-y", cluster_yaml).exit_code == 0
    assert json.loads(record.read_text()) == ["up", "-y", cluster_yaml]


def test_exit_code_is_rays(syncline_command, fake_ray, cluster_yaml):
    fake_ray(code=9)
    assert syncline_command("down", cluster_yaml, "-y").exit_code == 9


def test_file_that_is_not_there_is_a_usage_error(syncline_command, fake_ray, tmp_path):
    record = fake_ray()
    assert syncline_command("up", str(tmp_path / "missing.yaml")).exit_code == 2
    assert syncline_command("up", "-y").exit_code == 2
    assert not record.exists()
