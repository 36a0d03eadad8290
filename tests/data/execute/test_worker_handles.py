"""Where worker processes start: in proportion to the CPUs of living nodes, and where the program
says so as it says.
"""

from syncline.data.execute.worker_handles import NodeAssignment, least_loaded_node


def node(name: str, cpus: float, *, alive: bool = True) -> dict[str, object]:
    return {"NodeID": name, "Alive": alive, "Resources": {"CPU": cpus} if cpus else {}}


def test_each_node_gets_processes_in_proportion_to_its_cpus():
    taken: dict[str, int] = {}
    for _ in range(6):
        chosen = least_loaded_node(
            [node("small", 2), node("large", 4), node("head", 0), node("dead", 64, alive=False)],
            taken,
        )
        assert chosen is not None
        taken[chosen] = taken.get(chosen, 0) + 1
    assert taken == {"small": 2, "large": 4}


def test_a_node_that_joins_gets_the_next_processes():
    assert least_loaded_node([node("old", 2), node("new", 2)], {"old": 2}) == "new"


def test_without_cpus_the_engine_decides():
    assert least_loaded_node([node("head", 0)], {}) is None
    assert NodeAssignment(lambda: [node("head", 0)]).options_for(object()) == {}


def test_processes_count_as_long_as_they_exist():
    class Process:
        pass

    assignment = NodeAssignment(lambda: [node("a" * 4, 1), node("b" * 4, 1)])
    first, second = Process(), Process()
    chosen = [
        assignment.options_for(each)["scheduling_strategy"].node_id for each in (first, second)
    ]
    assert sorted(chosen) == ["aaaa", "bbbb"]
    del first
    third = Process()
    assert assignment.options_for(third)["scheduling_strategy"].node_id == chosen[0]
