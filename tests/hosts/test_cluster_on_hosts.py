"""A cluster on several hosts: joining nodes, spilled objects, broken links, private storage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.testing import eventually
from tests.hosts.lab import STORE_BYTES, Lab, facts_of, go, marks_of_epoch

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.xdist_group("hosts"),
    pytest.mark.timeout(240),
]


def test_a_new_node_is_used_by_a_pending_group_and_by_new_tasks(lab: Lab, tmp_path: Path) -> None:
    text = """
@syncline.remote(resources={"second": 1})
def where():
    return syncline.get_runtime_context().get_node_id()

result = trainer(lambda: in_step(1), workers=4).fit()
tell(**summary(result), where=syncline.get(where.remote()))
"""
    with lab.program(text, shared=tmp_path) as program:
        before = {rank["node"] for rank in marks_of_epoch(tmp_path, 0, ranks=4)}
        lab.kill("second")
        eventually(lambda: "attempt 1 failed" in program.stderr)
        lab.start("second")
        go(tmp_path, 0, 1)
        facts = facts_of(program)
    after = {rank["node"] for rank in marks_of_epoch(tmp_path, 1, ranks=4)}
    assert facts["kept"] == [0, 1]
    assert after - before == {facts["where"]}


def test_objects_beyond_the_memory_of_every_node_are_spilled_and_read_back_right(
    lab: Lab, tmp_path: Path
) -> None:
    text = f"""
import numpy

SIZE = 10 * 1024**2
COUNT = 3 * {STORE_BYTES} // SIZE

@syncline.remote
def make(number):
    return numpy.full(SIZE, number, dtype=numpy.uint8)

@syncline.remote
def wrong(numbers, arrays):
    pairs = zip(numbers, arrays)
    return [number for number, ref in pairs if not (syncline.get(ref) == number).all()]

numbers = list(range(COUNT))
put = [syncline.put(numpy.full(SIZE, number, dtype=numpy.uint8)) for number in numbers]
returned = [make.options(resources={{"first": 1}}).remote(number) for number in numbers]
tell(
    here=[number for number, ref in zip(numbers, put) if not (syncline.get(ref) == number).all()],
    from_first=[
        number
        for number, ref in zip(numbers, returned)
        if not (syncline.get(ref) == number).all()
    ],
    on_second=syncline.get(
        wrong.options(resources={{"second": 1}}).remote(numbers, put + returned)
    ),
    count=COUNT,
)
"""
    with lab.program(text, shared=tmp_path) as program:
        facts = facts_of(program)
    assert facts == {"here": [], "from_first": [], "on_second": [], "count": 30}


def test_doctor_finds_a_broken_link_and_names_both_ends(apart: Lab, tmp_path: Path) -> None:
    assert _doctor(apart, tmp_path)["ok"]
    first, second = apart.host("first"), apart.host("second")
    apart.rig.cut(first, second)
    found = _doctor(apart, tmp_path)
    assert not found["ok"]
    (network,) = [check for check in found["checks"] if check["check"] == "network"]
    assert network["status"] == "wrong"
    assert "2 of 6 links are broken" in network["message"]
    for here, there in ((first, second), (second, first)):
        assert (
            f"{here.address} ("
            in network["message"].split(" does not reach ")[0 if here is first else 1]
        )
        assert f"does not reach {there.address}" in network["message"]
    assert apart.rig[0].address not in network["message"]


def _doctor(lab: Lab, storage: Path) -> dict[str, Any]:
    """Run `syncline doctor` on the head's host and return its findings; check its exit code."""
    text = f"""
from syncline.cli import main

sys.argv = ["syncline", "doctor", "--json", "--limit", "3", "--storage-path", {str(storage)!r}]
sys.exit(main())
"""
    with lab.program(text, shared=storage) as program:
        ended = program.wait()
    found: dict[str, Any] = json.loads(ended.stdout)
    assert ended.return_code == (0 if found["ok"] else 1), ended.stderr
    return found


def test_private_storage_of_a_host_is_refused_with_its_name(apart: Lab, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    apart.kill("second")
    apart.start("second", apart.rig.with_own(apart.host("second"), tmp_path / "runs"))
    text = """
try:
    trainer(lambda: None).fit()
except ValueError as error:
    tell(error=str(error))
"""
    with apart.program(text, shared=tmp_path) as program:
        facts = facts_of(program)
    apart.kill("second")
    assert f"host-3 ({apart.host('second').address})" in facts["error"]
    assert "host-2" not in facts["error"]
