"""The cluster page without a browser: its elements as programs and clusters change."""

from dataclasses import replace

import pytest
from nicegui import Client, ui
from nicegui.elements.mixins.text_element import TextElement
from nicegui.page import page

from syncline.core.engine import ActorInfo, ActorListing, TaskCount, TaskInfo, TaskListing
from syncline.dashboard.cluster_poller import ClusterSnapshot
from syncline.dashboard.engine_snapshots import (
    EngineSnapshot,
    MachineSnapshot,
    Node,
    ProgramSnapshot,
)
from syncline.dashboard.pages.cluster_page import ClusterPage

NOW = 1_000.0
NODE = Node(
    node_id="ab" * 16,
    address="10.0.0.1",
    hostname="one",
    alive=True,
    head=True,
    resources={"CPU": 4.0},
    accelerators=[],
    labels={},
)
ACTOR = ActorInfo(
    actor_id="1",
    class_name="Counter",
    name="<img src=x>",
    state="ALIVE",
    pid=7,
    node_id="ab" * 16,
    resources={},
    restarts=0,
    pending_calls=0,
)
RUNNING = TaskInfo(
    task_id="2", name="work", state="RUNNING", pid=8, node_id="ab" * 16, started=990.0
)
ENGINE = EngineSnapshot(
    nodes=(NODE,),
    resources={"CPU": {"used": 3.0, "total": 4.0}},
    actors=ActorListing(actors=(ACTOR,), total=9),
    tasks=TaskListing(
        counts=(TaskCount(name="work", state="RUNNING", count=1),), running=(RUNNING,), total=1
    ),
)
NO_PROGRAMS = MachineSnapshot(programs=())


def program(pid, *, engine=ENGINE, problem=None):
    return ProgramSnapshot(
        key=f"socket-{pid}",
        pid=pid,
        command=f"python <b>{pid}</b>",
        started=900.0,
        engine=engine,
        problem=problem,
    )


class Shown:
    """The page and its visible elements."""

    def __init__(self):
        self.client = Client(page("/cluster-test"), request=None)
        with self.client:
            self.page = ClusterPage("10.0.0.1:6379")

    def show(self, machine=NO_PROGRAMS, cluster=None):
        with self.client:
            self.page.show(machine, cluster, NOW)

    def elements(self):
        return [element for element in self.client.elements.values() if self._is_seen(element)]

    def texts(self):
        return [element.text for element in self.elements() if isinstance(element, TextElement)]

    def headings(self):
        return [text for text in self.texts() if text.startswith(("Process", "Cluster"))]

    def rows(self, label):
        return [
            row
            for element in self.elements()
            if isinstance(element, ui.table) and element.props["aria-label"] == label
            for row in element.rows
        ]

    def _is_seen(self, element):
        while element is not None:
            if not element.visible:
                return False
            element = element.parent_slot.parent if element.parent_slot else None
        return True


@pytest.fixture
def shown():
    made = Shown()
    yield made
    made.client.delete()


def test_nothing_is_said_clearly(shown):
    shown.show()
    assert any(text.startswith("There is no cluster") for text in shown.texts())
    assert shown.headings() == []


def test_a_program_is_shown_with_its_actors_and_tasks_as_plain_text(shown):
    shown.show(MachineSnapshot(programs=(program(41),)))
    assert shown.headings() == ["Process 41"]
    assert "python <b>41</b>" in shown.texts()
    assert "3 of 4" in shown.texts()
    assert "1 of 9 actors are shown." in shown.texts()
    (actor,) = shown.rows("Actors")
    assert (actor["name"], actor["state"], actor["node"]) == ("<img src=x>", "alive", "one")
    (running,) = shown.rows("Running tasks")
    assert running["since:text"] == "10 s"
    assert not any(isinstance(element, ui.html) for element in shown.elements())


def test_metrics_of_user_code_are_shown_without_buckets(shown):
    text = 'calls{model="a",size="b"} 3\nt_bucket{le="1"} 2\nt_count 2\n<b> 1\n'
    shown.show(MachineSnapshot(programs=(replace(program(41), metrics=text), program(42))))
    assert [(row["name"], row["tags"], row["value"]) for row in shown.rows("Metrics")] == [
        ("calls", "model=a, size=b", "3"),
        ("t_count", "", "2"),
    ]


def test_programs_come_and_go_the_latest_first(shown):
    shown.show(MachineSnapshot(programs=(program(41),)))
    shown.show(MachineSnapshot(programs=(program(42), program(41))))
    assert [child.default_slot.children[0].text for child in shown.page._programs_place] == [
        "Process 42",
        "Process 41",
    ]
    shown.show(MachineSnapshot(programs=(program(42),)))
    assert shown.headings() == ["Process 42"]
    shown.show()
    assert shown.headings() == []


def test_a_program_that_does_not_answer_says_why_instead(shown):
    shown.show(
        MachineSnapshot(programs=(program(41, engine=None, problem="It is stopped."),), others=3)
    )
    assert "It is stopped." in shown.texts()
    assert "3 older programs are not shown." in shown.texts()
    assert shown.rows("Actors") == []
    shown.show(MachineSnapshot(programs=(program(41),)))
    assert "It is stopped." not in shown.texts()
    assert len(shown.rows("Actors")) == 1


def test_a_cluster_is_shown_with_its_nodes_and_what_became_of_it(shown):
    def cluster(**fields):
        return ClusterSnapshot(address="10.0.0.1:6379", **fields)

    shown.show(cluster=cluster(engine=None))
    assert "Connecting to the cluster at 10.0.0.1:6379 …" in shown.texts()
    assert not any(text.startswith("There is no cluster") for text in shown.texts())
    shown.show(cluster=cluster(engine=ENGINE))
    assert [row["host"] for row in shown.rows("Nodes")] == ["one (head)"]
    assert not any(text.startswith("Connecting") for text in shown.texts())
    shown.show(cluster=cluster(engine=ENGINE, problem="its head is gone"))
    assert any("its head is gone. The values below are outdated." in text for text in shown.texts())
    assert len(shown.rows("Nodes")) == 1
    shown.show(cluster=None)
    assert shown.headings() == []


def test_what_an_engine_cannot_tell_is_explained(shown):
    unknown = EngineSnapshot(
        nodes=(),
        resources={},
        actors=ActorListing(unknown="the head is silent"),
        tasks=TaskListing(),
    )
    shown.show(cluster=ClusterSnapshot(address="auto", engine=unknown))
    assert "the head is silent" in shown.texts()
    assert "unknown" in shown.texts()
    assert "No tasks." in shown.texts()
