"""RLlib's module paths and names: each exists, or its absence is explained.

`rllib_2_60_names.txt` has the public names of RLlib 2.60 by module, without examples.
"""

import contextlib
import importlib
from pathlib import Path

import pytest

from syncline.rl.algorithms.retired import RetiredAlgorithmError
from syncline.rl.public_missing import MISSING
from syncline.rl.public_retired import MODULES, reason_of
from syncline.rl.public_table import PATHS

pytestmark = pytest.mark.filterwarnings("ignore")

FROZEN = {
    module.removeprefix("."): names.split()
    for module, _, names in (
        line.partition(": ")
        for line in (Path(__file__).parent / "rllib_2_60_names.txt").read_text("utf-8").splitlines()
    )
}
WHOLE = {"", "algorithms"}
"""Own packages that have RLlib's names, too."""


def load(prefix, relative):
    return importlib.import_module(f"{prefix}.{relative}" if relative else prefix)


@pytest.mark.parametrize("prefix", ["syncline.rllib", "syncline.rl"])
def test_every_name_of_the_table_exists(prefix):
    for relative, homes in PATHS.items():
        module = load(prefix, relative)
        if prefix == "syncline.rl" and "__file__" in vars(module) and relative not in WHOLE:
            continue  # this project's own, which happens to have the name of one of RLlib's
        for home, names in homes.items():
            for each in names.split() if names != "*" else ():
                name = each.rpartition(":")[2]
                with contextlib.suppress(RetiredAlgorithmError):
                    assert getattr(module, name) is not None, (relative, home, name)


def test_every_name_of_rllib_exists_or_its_absence_is_explained():
    wrong = []
    for relative, names in FROZEN.items():
        module = load("syncline.rllib", relative)
        for name in set(names):
            try:
                getattr(module, name)
            except ImportError as error:
                if "has no counterpart in syncline" not in str(error):
                    wrong.append(f"{relative}.{name}: {error}")
            except RetiredAlgorithmError:
                pass
            except AttributeError:
                wrong.append(f"{relative}.{name}")
    assert wrong == []


def test_missing_names_are_those_of_rllib():
    unknown = [
        f"{module}.{name}"
        for module, names in MISSING.items()
        for name in names.split()
        if name not in FROZEN.get(module, ())
    ]
    assert unknown == []


def test_reasons_are_sentences_and_all_patterns_are_used():
    missing = [(module, name) for module, names in MISSING.items() for name in names.split()]
    reasons = {reason_of(*each) for each in missing}
    assert all(each.endswith(".") and each[0] in "`ABCDEFGHIJKLMNOPQRSTUVWXYZ" for each in reasons)
    assert len(reasons) > 15
    assert {reason for _, reason in MODULES} - reasons <= {
        reason for _, reason in MODULES if "inside of RLlib" in reason
    }


def test_explained_names_say_what_to_use():
    for line, remedy in (
        ("from syncline.rllib.policy.tf_policy import TFPolicy", "torch"),
        ("from syncline.rllib.evaluation.rollout_worker import RolloutWorker", "SingleAgentEnv"),
        ("from syncline.rllib import VectorEnv", "gymnasium"),
    ):
        with pytest.raises(ImportError, match=rf"no counterpart in syncline\..*{remedy}"):
            exec(line)


def test_wrong_paths_and_names_are_errors_as_usual():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("syncline.rllib.utils.spacse")
    module = importlib.import_module("syncline.rllib.algorithms.ppo")
    with pytest.raises(AttributeError, match=r"PPOConfg.*Did you mean 'PPOConfig'"):
        module.PPOConfg  # noqa: B018
