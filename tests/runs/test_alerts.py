"""Alerts: commands, webhooks, and receivers that fail."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from syncline import train
from syncline.runs import alerts
from syncline.runs.alerts import AlertSender, alerts_of
from syncline.testing.waiting import eventually


@pytest.fixture
def sent() -> Iterator[Any]:
    """Return a function that waits for the senders and returns their exit codes."""
    yield lambda: [process.wait(timeout=60) for process in alerts._started]
    for process in alerts._started:
        process.kill()
        process.wait()
    alerts._started.clear()


def send(sender: AlertSender, event: str = "errored") -> None:
    error = "Traceback (most recent call last):\n  x\nKeyError: 'label'"
    sender.send(event, run="vit $(touch evil)", kind="train", path="/runs/vit", error=error)


def test_a_command_gets_the_alert(tmp_path: Path, sent: Any) -> None:
    out = tmp_path / "out"
    send(AlertSender(command=f'cat > {out}; printf "\\n$SYNCLINE_ALERT_TEXT" >> {out}'))
    assert sent() == [0]
    content, text = out.read_text().splitlines()
    found = json.loads(content)
    assert found["text"] == text
    assert text == "syncline: the training vit $(touch evil) ended with an error: KeyError: 'label'"
    assert (found["event"], found["path"], found["cause"], found["kind"]) == (
        "errored",
        "/runs/vit",
        "KeyError: 'label'",
        "train",
    )
    assert not (tmp_path / "evil").exists()


def test_a_webhook_gets_the_alert(sent: Any) -> None:
    received: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        send(AlertSender(webhook=f"http://127.0.0.1:{server.server_port}/hook"), "finished")
        thread.join(timeout=60)
        assert sent() == [0]
    assert received[0]["event"] == "finished"


def test_only_the_chosen_events_are_sent(sent: Any) -> None:
    send(AlertSender(command="true", events=["stalled"]), "errored")
    send(AlertSender(command="true"), "aborted")
    assert sent() == []


def test_a_failed_alert_is_printed_without_its_secrets(
    sent: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(AlertSender(command="exit 3 # secret"))
    send(AlertSender(webhook="http://127.0.0.1:1/secret"))
    assert sent() == [0, 0]
    printed = capfd.readouterr().err
    assert "the alert command failed: exit code 3" in printed
    assert "the alert webhook failed" in printed
    assert "secret" not in printed
    monkeypatch.setattr(sys, "executable", "/nowhere")
    send(AlertSender(command="true"))  # cannot start, does not raise


def test_a_slow_receiver_is_ended_at_the_limit(
    sent: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "LIMIT_S", 0.2)
    send(AlertSender(command="exec sleep 600"))
    assert sent() == [0]
    assert "no end within 0.2 s" in capfd.readouterr().err


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="a command or a webhook"):
        train.AlertCallback()
    with pytest.raises(ValueError, match="https://"):
        train.AlertCallback(webhook="hooks.example.org")
    with pytest.raises(ValueError, match="'failed' is unknown"):
        train.AlertCallback("true", events=["failed"])  # type: ignore[list-item]


def test_alerts_come_from_callbacks_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    callback = train.AlertCallback("mail secret")
    assert alerts_of([callback, train.UserCallback()]) == [callback]
    assert alerts_of(None) == []
    assert "secret" not in repr(callback)
    monkeypatch.setenv("SYNCLINE_ALERT_COMMAND", "true")
    assert len(alerts_of([callback])) == 2
    monkeypatch.setenv("SYNCLINE_ALERT_COMMAND", "")
    monkeypatch.setenv("SYNCLINE_ALERT_WEBHOOK", "not a URL")
    assert alerts_of(None) == []


PROGRAM = """
import sys
from syncline import train, tune

def work(config):
    train.report({"loss": 1.0}) if config["kind"] == "train" else tune.report({"loss": 1.0})
    if config["fails"]:
        raise KeyError("label")

kind, fails = sys.argv[2], sys.argv[3] == "fails"
config = {"kind": kind, "fails": fails}
alerts = train.AlertCallback(f"cat > {sys.argv[1]}/alert-$SYNCLINE_ALERT_EVENT")
if kind == "train":
    run_config = train.RunConfig(name="a", storage_path=sys.argv[1], callbacks=[alerts])
    scaling_config = train.ScalingConfig(num_workers=1)
    trainer = train.DataParallelTrainer(
        work, train_loop_config=config, scaling_config=scaling_config, run_config=run_config
    )
    trainer.fit()
else:
    run_config = tune.RunConfig(name="a", storage_path=sys.argv[1], callbacks=[alerts])
    tune.Tuner(work, param_space=config, run_config=run_config).fit()
"""


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["train", "tune"])
@pytest.mark.parametrize(("ending", "event"), [("fails", "errored"), ("works", "finished")])
def test_the_end_of_a_run_is_an_alert(tmp_path: Path, kind: str, ending: str, event: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), kind, ending]
    subprocess.run(command, capture_output=True, timeout=120, check=False)

    def alert() -> dict[str, Any]:
        file = tmp_path / f"alert-{event}"
        text = file.read_text() if file.exists() else ""
        return json.loads(text) if text.endswith("}") else {}

    found = eventually(alert, what="the alert arrives, also after the program has ended")
    assert (found["run"], found["kind"], found["path"]) == ("a", kind, str(tmp_path / "a"))
    assert found["cause"] == ("KeyError: 'label'" if ending == "fails" else "")
    assert "secret" not in (tmp_path / "a" / "run.json").read_text()
    assert "cat >" not in (tmp_path / "a" / "run.json").read_text()
