"""An engine that records its calls and returns values that the test provides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syncline.core import engine as engine_module
from syncline.core import lifecycle
from syncline.core.engine import ActorRecord, Engine, RuntimeInfo, set_engine
from syncline.core.refs import Hold, ObjectRef


class FakeEngine(Engine):
    session_directory = Path("session")
    is_local_mode = False

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.values: dict[int, Any] = {}  # an exception is raised
        self.info = RuntimeInfo(job_id="01", node_id="n1", worker_id="w1", namespace="default")
        self.abandoned = False
        self._last_id = 0

    def _new(self, value: Any = None) -> ObjectRef[Any]:
        self._last_id += 1
        self.values[self._last_id] = value
        return ObjectRef(self._last_id)

    def submit_task(self, plan, args, kwargs):
        self.calls.append(("task", plan, args, kwargs))
        return self._new()

    def create_actor(self, plan, args, kwargs):
        self.calls.append(("actor", plan, args, kwargs))
        self._last_id += 1
        return ActorRecord.of(plan, self._last_id), Hold(self._last_id)

    def submit_call(self, plan, args, kwargs):
        self.calls.append(("call", plan, args, kwargs))
        return self._new()

    def cancel(self, ref, *, force, recursive):
        self.calls.append(("cancel", ref.id, force, recursive))

    def kill(self, actor_id, *, no_restart):
        self.calls.append(("kill", actor_id, no_restart))

    def exit_actor(self):
        self.calls.append(("exit_actor",))

    def named_actor(self, name, namespace):
        return ActorRecord(actor_id=99, class_name="Named", methods={}), Hold(99)

    def list_named_actors(self, *, all_namespaces):
        return []

    def put(self, value):
        return self._new(value)

    def get(self, refs, timeout_s):
        self.calls.append(("get", [r.id for r in refs], timeout_s))
        found = [self.values[ref.id] for ref in refs]
        for value in found:
            if isinstance(value, BaseException):
                raise value
        return found

    def wait(self, refs, *, num_returns, timeout_s, fetch_local):
        self.calls.append(("wait", num_returns, timeout_s, fetch_local))
        return list(refs[:num_returns]), list(refs[num_returns:])

    def free(self, refs):
        self.calls.append(("free", [ref.id for ref in refs]))

    def next_item(self, generator, index, timeout_s):
        return None

    def on_value(self, ref, callback):
        callback(self.values[ref.id], None)

    def on_item(self, generator, index, callback):
        callback(None)

    def create_placement_group(self, bundles, *, strategy, name, detached, label_selectors=()):
        return 7

    def placement_group_ready(self, group_id):
        return self._new(True)

    def remove_placement_group(self, group_id): ...

    def placement_groups(self):
        return []

    def nodes(self):
        return [{"NodeID": "n1", "Alive": True, "NodeManagerAddress": "127.0.0.1"}]

    def cluster_resources(self):
        return {"CPU": 4.0}

    def available_resources(self):
        return {"CPU": 3.0}

    def runtime_info(self):
        return self.info

    def timeline(self):
        return [{"name": "f"}]

    def statistics(self):
        return {}

    def shutdown(self):
        self.calls.append(("shutdown",))

    def abandon_after_fork(self):
        self.abandoned = True


@contextmanager
def running_fake_engine(monkeypatch) -> Iterator[list[FakeEngine]]:
    """Make `init` start fake engines; yield the list of them, and shut down at the end."""
    started: list[FakeEngine] = []

    def start(name, config):
        engine = FakeEngine()
        engine.name, engine.config = name, config
        started.append(engine)
        return engine

    monkeypatch.setattr(lifecycle, "load_engine", start)
    monkeypatch.delenv("SYNCLINE_ADDRESS", raising=False)
    assert engine_module.current is None
    yield started
    lifecycle.shutdown()
    set_engine(None)
