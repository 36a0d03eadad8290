"""Names of Ray looked up in syncline, and advice for those that are missing."""

import builtins
import importlib

import pytest

from syncline.cli.migration import remedies
from syncline.cli.migration.surface import Missing, find, unknown_arguments, variable


@pytest.mark.parametrize(
    "name",
    [
        "ray",
        "ray.get",
        "ray.data.read_parquet",
        "ray.tune.schedulers.ASHAScheduler",
        "ray.tune.Tuner.restore",
        "ray.train.RunConfig.name",
        "ray.exceptions.RayTaskError",
        "ray.util.queue.Queue",
        "ray.train.RunConfig.name.anything",
        "ray.util.client.ray.is_connected",
        "ray.dashboard.modules.job.sdk.JobSubmissionClient",
        "ray.util.placement_group.PlacementGroup",
    ],
)
def test_existing_names_are_found(name: str) -> None:
    assert not isinstance(find(name), Missing)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("ray.util.spark.setup_ray_cluster", "ray.util.spark"),
        ("ray.util.client.ray.nonsense", "ray.util.client.ray.nonsense"),
        ("ray.get.nonsense", "ray.get.nonsense"),
        ("ray.tune.Tuner.nonsense", "ray.tune.Tuner.nonsense"),
        ("ray.data.np.array", "ray.data.np"),
        ("ray.dashboard.modules", "ray.dashboard"),
    ],
)
def test_missing_names_are_reported_by_their_shortest_missing_prefix(
    name: str, missing: str
) -> None:
    found = find(name)
    assert isinstance(found, Missing)
    assert found.name == missing


def test_module_without_its_library_is_searched_in_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.import_module

    def without_library(name: str, package: str | None = None) -> object:
        if name == "syncline.train.lightgbm":
            raise ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without_library)
    monkeypatch.delattr("syncline.train.lightgbm", raising=False)
    find.cache_clear()
    assert find("ray.train.lightgbm") is None
    assert find("ray.train.lightgbm.LightGBMTrainer.anything") is None
    assert find("ray.train.lightgbm.Nonsense") == Missing("ray.train.lightgbm.Nonsense")
    find.cache_clear()


def test_unknown_arguments_are_found_where_the_signature_is_known() -> None:
    def takes(a: int, *, b: int = 1) -> None: ...

    def takes_all(**options: int) -> None: ...

    assert unknown_arguments(takes, ["a", "b", "c"]) == ["c"]
    assert unknown_arguments(takes_all, ["c"]) == []
    assert unknown_arguments(builtins.print, ["end"]) == []
    assert unknown_arguments(None, ["c"]) == []


def test_remedies_are_for_missing_names_only() -> None:
    assert [name for name in remedies.REMEDIES if not isinstance(find(name), Missing)] == []
    assert [name for name in remedies.PARTS if isinstance(find(name), Missing)] == []
    assert [name for name in remedies.DIFFERENCES if isinstance(find(name), Missing)] == []


def test_longest_prefix_with_a_remedy_applies() -> None:
    remedy = remedies.remedy("ray.serve.llm.LLMServer")
    assert remedy == remedies.REMEDIES["ray.serve.llm"]
    assert remedies.remedy("ray.tune.utils.nothing") == remedies.PARTS["ray.tune.utils"]
    assert remedies.remedy("ray.tune.nothing") is None


def test_variables_have_counterparts_that_syncline_reads() -> None:
    for name, counterpart in remedies.RENAMED_VARIABLES.items():
        assert variable(name) == counterpart
    assert variable("RAY_NAMESPACE") == "SYNCLINE_NAMESPACE"
    assert variable("RAY_JOB_ID") is None
