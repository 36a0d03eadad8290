"""Looking names up in syncline itself."""

import builtins
import importlib

import pytest

from syncline.cli.migration import remedies
from syncline.cli.migration.surface import Known, Missing, Surface, own_variables, unknown_arguments


@pytest.mark.parametrize(
    "name",
    ["ray", "ray.get", "ray.data.read_parquet", "ray.tune.schedulers.ASHAScheduler", "ray.tune.Tuner.restore", "ray.train.RunConfig.name",
     "ray.exceptions.RayTaskError", "ray.util.queue.Queue", "ray.remote.anything"],
)  # fmt: skip
def test_what_syncline_has_is_known(name: str) -> None:
    assert isinstance(Surface().find(name), Known)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("ray.rllib.algorithms.ppo", "ray.rllib"),
        ("ray.util.multiprocessing.Pool", "ray.util.multiprocessing"),
        ("ray.tune.Tuner.nonsense", "ray.tune.Tuner.nonsense"),
        ("ray.data.np.array", "ray.data.np"),
        ("ray.dashboard.modules", "ray.dashboard"),
    ],
)
def test_what_it_has_not_is_missing_by_the_shortest_name(name: str, missing: str) -> None:
    found = Surface().find(name)
    assert isinstance(found, Missing)
    assert found.name == missing


def test_a_module_whose_library_is_missing_is_known_by_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.import_module

    def without_library(name: str, package: str | None = None) -> object:
        if name == "syncline.train.lightgbm":
            raise ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without_library)
    monkeypatch.delattr("syncline.train.lightgbm", raising=False)
    surface = Surface()
    assert isinstance(surface.find("ray.train.lightgbm"), Known)
    assert isinstance(surface.find("ray.train.lightgbm.LightGBMTrainer.anything"), Known)
    assert surface.find("ray.train.lightgbm.Nonsense") == Missing(
        name="ray.train.lightgbm.Nonsense"
    )


def test_arguments_are_compared_where_they_can_be() -> None:
    def takes(a: int, *, b: int = 1) -> None: ...

    def takes_all(**options: int) -> None: ...

    assert unknown_arguments(takes, ["a", "b", "c"]) == ["c"]
    assert unknown_arguments(takes_all, ["c"]) == []
    assert unknown_arguments(builtins.print, ["end"]) == []
    assert unknown_arguments(None, ["c"]) == []


def test_no_remedy_is_about_something_that_is_there() -> None:
    surface = Surface()
    assert [name for name in remedies.REMEDIES if isinstance(surface.find(name), Known)] == []
    assert [name for name in remedies.DIFFERENCES if isinstance(surface.find(name), Missing)] == []


def test_the_longest_remedy_counts_and_variables_exist() -> None:
    assert (
        remedies.remedy("ray.data.llm.vLLMEngineProcessorConfig")
        == remedies.REMEDIES["ray.data.llm"]
    )
    assert remedies.remedy("ray.tune.nothing") is None
    variables = own_variables()
    assert set(remedies.RENAMED_VARIABLES.values()) <= variables
    assert remedies.variable("RAY_NAMESPACE", variables) == "SYNCLINE_NAMESPACE"
    assert remedies.variable("RAY_JOB_ID", variables) is None
