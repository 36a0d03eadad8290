"""What facts mean: each subject ok, or wrong with the names of the nodes and a remedy."""

from dataclasses import replace

import pytest

from syncline.cli.doctor.checks import run_checks
from syncline.cli.doctor.findings import (
    Examination,
    GlooFacts,
    Link,
    NodeFacts,
    Skew,
    Space,
    StorageFacts,
    TorchFacts,
)

GIB = 1024**3
TORCH = TorchFacts(cuda="13.0", cuda_available=True, nccl="2.28.9")
NODE = NodeFacts(
    python="3.11.7",
    versions={"syncline": "0.1.0", "ray": "2.60.0", "torch": "2.13.0"},
    torch=TORCH,
    torch_error=None,
    gpus=["H200", "H200"],
    driver="570.1",
    shared_memory=Space(path="/dev/shm", total_bytes=64 * GIB, free_bytes=60 * GIB),
    temporary=Space(path="/tmp", total_bytes=100 * GIB, free_bytes=50 * GIB),
    open_files=65536,
)
STORAGE = StorageFacts(path="/shared", writer="a", write_error=None, unseen={})
WELL = Examination(
    cluster="a:6379",
    nodes={"a": NODE, "b": NODE},
    skews={"a": Skew(seconds=0.0, uncertain_s=0.001), "b": Skew(seconds=0.2, uncertain_s=0.001)},
    links=[Link(source="a", target="b", error=None), Link(source="b", target="a", error=None)],
    gloo=GlooFacts(seconds=0.1, errors={}),
    storage=STORAGE,
)


def check(facts, name):
    (found,) = [check for check in run_checks(facts) if check.check == name]
    return found


def with_b(**changes):
    return replace(WELL, nodes={"a": NODE, "b": replace(NODE, **changes)})


def test_well_cluster_has_no_remedies():
    assert {found.status for found in run_checks(WELL)} == {"ok"}
    assert [found.remedy for found in run_checks(WELL)] == [None] * len(run_checks(WELL))
    assert "4 x H200" not in check(WELL, "gpus").message
    assert "2 x H200, driver 570.1 on a, b" in check(WELL, "gpus").message


@pytest.mark.parametrize(
    ("name", "facts", "status", "says"),
    [
        ("nodes", replace(WELL, silent={"c": "no syncline"}), "wrong", "c: no syncline"),
        ("nodes", replace(WELL, dead=["c"]), "warning", "lost c"),
        ("python", with_b(python="3.12.1"), "wrong", "3.11.7 on a; 3.12.1 on b"),
        ("python", with_b(python="3.11.9"), "warning", "3.11.9 on b"),
        (
            "python",
            replace(WELL, driver=replace(NODE, python="3.10.1")),
            "wrong",
            "3.10.1 on this program",
        ),
        (
            "syncline",
            with_b(versions={**NODE.versions, "syncline": "0.2.0"}),
            "wrong",
            "0.2.0 on b",
        ),
        ("ray", with_b(versions={**NODE.versions, "ray": "2.59.0"}), "wrong", "2.59.0 on b"),
        ("torch", with_b(versions={**NODE.versions, "torch": None}), "wrong", "not installed on b"),
        (
            "torch",
            with_b(torch=None, torch_error="ImportError: libcudart"),
            "wrong",
            "b: ImportError: libcudart",
        ),
        (
            "gpus",
            with_b(torch=replace(TORCH, cuda=None, cuda_available=False)),
            "wrong",
            "CPU build on b",
        ),
        ("gpus", with_b(torch=replace(TORCH, cuda_available=False)), "wrong", "no usable GPU on b"),
        ("gpus", with_b(driver="560.1"), "warning", "driver 560.1 on b"),
        ("nccl", with_b(torch=replace(TORCH, nccl=None)), "wrong", "no NCCL on b"),
        ("nccl", with_b(torch=replace(TORCH, nccl="2.20.5")), "wrong", "2.20.5 on b"),
        (
            "clocks",
            replace(WELL, skews={"b": Skew(seconds=-2.0, uncertain_s=0.1)}),
            "warning",
            "b: 2.0 s behind",
        ),
        (
            "network",
            replace(WELL, links=[Link(source="a", target="b", error="refused")]),
            "wrong",
            "a does not reach b: refused",
        ),
        (
            "gloo",
            replace(WELL, gloo=GlooFacts(seconds=1.0, errors={"b": "timed out"})),
            "wrong",
            "b: timed out",
        ),
        (
            "storage",
            replace(WELL, storage=replace(STORAGE, unseen={"b": "not there"})),
            "wrong",
            "b: not there",
        ),
        (
            "storage",
            replace(WELL, storage=replace(STORAGE, write_error="read-only")),
            "wrong",
            "a cannot write to /shared: read-only",
        ),
        ("shared memory", with_b(shared_memory=None), "warning", "no /dev/shm on b"),
        (
            "shared memory",
            with_b(shared_memory=Space(path="/dev/shm", total_bytes=GIB // 8, free_bytes=GIB // 8)),
            "warning",
            "128 MiB",
        ),
        (
            "shared memory",
            with_b(shared_memory=Space(path="/dev/shm", total_bytes=GIB, free_bytes=1024)),
            "wrong",
            "b: ",
        ),
        ("open files", with_b(open_files=256), "wrong", "b: 256"),
        ("open files", with_b(open_files=1024), "warning", "b: 1024"),
        (
            "disk",
            with_b(temporary=Space(path="/tmp", total_bytes=100 * GIB, free_bytes=1000)),
            "wrong",
            "b: ",
        ),
        (
            "disk",
            with_b(temporary=Space(path="/tmp", total_bytes=100 * GIB, free_bytes=2 * GIB)),
            "warning",
            "more than 95%",
        ),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(name, facts, status, says):
    found = check(facts, name)
    assert found.status == status
    assert says in found.message
    assert found.remedy


def test_one_machine_without_torch_or_gpus_is_well():
    node = replace(
        NODE,
        gpus=[],
        driver=None,
        torch=None,
        versions={"syncline": "0.1.0", "ray": None, "torch": None},
    )
    checks = run_checks(
        Examination(cluster=None, nodes={"this machine": node}, storage=WELL.storage)
    )
    assert {found.status for found in checks} == {"ok", "skipped"}
    assert {found.check for found in checks if found.status == "skipped"} == {
        "ray",
        "torch",
        "nccl",
        "gloo",
    }


def test_unlimited_files_are_well():
    assert check(with_b(open_files=-1), "open files").status == "ok"


def test_clock_is_not_blamed_for_a_slow_answer():
    assert (
        check(replace(WELL, skews={"b": Skew(seconds=1.5, uncertain_s=2.0)}), "clocks").status
        == "ok"
    )


def test_broken_network_comes_before_the_remedy_of_gloo():
    facts = replace(
        WELL,
        links=[Link(source="a", target="b", error="refused")],
        gloo=GlooFacts(seconds=1.0, errors={"b": "timed out"}),
    )
    assert check(facts, "gloo").remedy == "repair the network first"


def test_many_broken_links_are_counted():
    links = [Link(source="a", target=f"n{number}", error="refused") for number in range(20)]
    assert "and 15 more" in check(replace(WELL, links=links), "network").message
