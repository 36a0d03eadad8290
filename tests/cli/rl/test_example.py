"""`rl example`, and the examples themselves: each runs to its end and shows what it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

EXAMPLES = Path(__file__).parents[3] / "examples" / "rl"

SHOWN = {
    "array_env": r"vector_entry_point: \d+ steps per second",
    "callbacks": r"largest angle: 0\.\d+",
    "connectors": r"the module sees \(8,\)",
    "curriculum": r"length at the end: (8|[1-9]\d)",
    "custom_distribution": r"mean return: [89]\.\d+ of 10",
    "custom_env": r"mean return: 0\.[0-3]",
    "custom_evaluation": r"'return_at_24\.8': \d+",
    "custom_exploration": r"greedy: [1-5]\d\d",
    "custom_loss": r"penalty: 0\.\d+",
    "custom_module": r"ResidualModule [4-9]\d|ResidualModule \d{3}",
    "custom_optimizer": r"0\.00076",
    "custom_training_step": r"[12] \d+\.\d+",
    "exact_resume": r"equal weights: True",
    "external_simulator": r"mean return: ([4-9]\d|\d{3})",
    "memory": r"mean return: [2-9]\d",
    "multi_agent": r"'left': [3-9]\d.*'right': [3-9]\d|'right': [3-9]\d.*'left': [3-9]\d",
    "offline": r"student: [1-5]\d\d",
    "pettingzoo_env": r"won (9|1[0-5])\.\d of 15",
    "self_play": r"opponent_1 joins the league",
    "serve_policy": r"\{'action': [01]\}",
    "tune_ppo": r"best learning rate: 0\.001",
}
"""What the output of each example contains when it works."""


def test_every_example_has_a_test_and_is_short():
    files = {file.stem: file for file in EXAMPLES.glob("*.py")}
    assert sorted(files) == sorted(SHOWN)
    for file in files.values():
        assert len(file.read_text().splitlines()) <= 90


def test_examples_are_listed_with_a_sentence_each(syncline_command):
    done = syncline_command("rl", "example", "list", "--json")
    found = json.loads(done.output)["examples"]
    assert sorted(found) == sorted(SHOWN)
    assert all(text.endswith(".") for text in found.values())


def test_an_example_is_printed_as_it_is(syncline_command):
    done = syncline_command("rl", "example", "get", "custom-env")
    assert done.output == (EXAMPLES / "custom_env.py").read_text()


def test_an_unknown_example_is_an_error_with_the_nearest_name(syncline_command):
    done = syncline_command("rl", "example", "run", "custom_enf")
    assert done.exit_code == 1
    assert "Did you mean 'custom_env'" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_shows_what_it_says(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "syncline", "rl", "example", "run", name],
        capture_output=True,
        text=True,
        timeout=170,
        env={**os.environ, "SYNCLINE_STORAGE_PATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(SHOWN[name], done.stdout), done.stdout[-2000:]
