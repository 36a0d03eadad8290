"""Runs written to attack visitors of the dashboard."""

from __future__ import annotations

import json
import os
from pathlib import Path

from syncline.runs import LocalFiles, RunDirectory

IMAGE = "<img src=x onerror=window.pwned=1>"
TEMPLATE = "{{7*7}} ${7*7} {{constructor.constructor('window.pwned=1')()}}"
EVIL = (
    f"<script>window.pwned=1</script>{IMAGE}\"'`]]>--> {TEMPLATE} \x1b[31mred\x1b[0m "
    f"\u202efdp.exe <b>bold</b>"
)
SHOWN = EVIL.replace("\x1b", "\ufffd").replace("\u202e", "\ufffd")
"""Text that pages show for `EVIL`: direction marks and control characters are replaced."""
DIRECTORY = f'{IMAGE} {{{{7*7}}}} "]]>'
UNNAMEABLE = "a\u202ebcd\x1b[31m"
"""Directory name that no URL can contain."""
SECRET = "what only the owner may read"


def write_all(storage: Path) -> None:
    """Write all hostile runs below a storage path."""
    for kind in ("train", "tune", "data"):
        write(storage / f"{kind} {DIRECTORY}", kind)
    write(storage / UNNAMEABLE, "train")
    write_damaged(storage / "damaged", storage.parent / "secret")


def write(directory: Path, kind: str) -> None:
    """Write a run in which every text is hostile."""
    with RunDirectory(LocalFiles(directory)) as run:
        run.write_run(EVIL, {EVIL: EVIL, "plan": EVIL, "metric": EVIL}, kind=kind, detailed=False)
        run.event("started", **{EVIL: EVIL})
        workers = [{"rank": rank, "hostname": EVIL, "pid": 1, "gpu_ids": [EVIL]} for rank in (0, 1)]
        run.event("attempt", number=1, workers=workers, first_report=0)
        for step in range(3):
            for rank in (0, 1):
                run.report(step, rank, {EVIL: step, ":formatter": step, "nested": {EVIL: step}})
                run.sample(
                    rank,
                    1,
                    1,
                    {"cpu_percent": step, "gpus": [{"id": EVIL, "util_percent": step}]},
                    {"total_s": step + 1.0},
                )
            run.line("trials.jsonl", trial(step))
        run.event("checkpoint", report=EVIL, name=EVIL)
        run.event(
            "failure", attempt=1, ranks={EVIL: EVIL, "0": EVIL}, tracebacks={EVIL: EVIL, "0": EVIL}
        )
        run.event(EVIL, **{EVIL: [EVIL]})
        operator = {"name": EVIL, "inputs": []}
        run.line(
            "data/evil.jsonl", {"time": 1.0, "dataset": EVIL, "pass": 0, "operators": [operator]}
        )
        run.line(
            "data/evil.jsonl",
            {
                "time": 2.0,
                "wall_s": 1.0,
                "rows": 1,
                "operators": [{"rows": 1}],
                "ended": "errored",
                "error": EVIL,
            },
        )
        run.write_outcome("errored", EVIL)
    for folder in ("logs", "profiles"):
        (directory / folder).mkdir(exist_ok=True)
    (directory / "logs" / "rank-0.log").write_text(f"{EVIL}\n" * 3)
    (directory / "profiles" / f"{IMAGE}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg">{EVIL}</svg>'
    )
    (directory / "profiles" / "evil.html").write_text(
        "<title>started</title><script>document.title = 'ran'; try { document.title += ' ' + "
        "opener.location.href } catch { }"
        "try { document.title += document.cookie } catch { } fetch('/').then(() => { "
        "document.title = 'fetched' }).catch(() => {})</script>"
    )
    (directory / "checkpoints.json").write_text(
        json.dumps({"checkpoints": [{"name": EVIL, "index": 1, "metrics": {EVIL: 1}}]})
    )


def trial(number: int) -> dict[str, object]:
    return {
        "time": 1.0 + number,
        "trial": f"{IMAGE}{number}",
        "name": EVIL,
        "status": "TERMINATED",
        "iteration": number,
        "config": {EVIL: number, ":formatter": "() => { window.pwned = 1 }"},
        "metrics": {EVIL: number},
        "error": EVIL,
        "hostname": EVIL,
    }


def write_damaged(directory: Path, secret: Path) -> None:
    """Write a run with damaged, endless and linked files."""
    secret.write_text(json.dumps({"time": 1, "event": SECRET, "rank": 0}) + "\n")
    with RunDirectory(LocalFiles(directory)) as run:
        run.write_run("damaged", {}, detailed=False)
        for step in range(5):
            run.report(step, 0, {"loss": step})
        run.event("attempt", number=1, workers=[{"rank": 0, "hostname": "here"}])
    with (directory / "metrics.jsonl").open("a") as lines:
        lines.write(
            '{"iteration": 5, "rank": 0, "metrics": {"loss": NaN}}\n[1, 2]\n{"metrics": '
            "3}\n\x00\x01\n"
        )
        lines.write(
            json.dumps(
                {"iteration": 6, "rank": 0, "time": 1e300, "metrics": {"x" * 100_000: 1, "loss": 5}}
            )
            + "\n"
        )
        lines.write('{"iteration": 7, "ra')
    (directory / "logs").mkdir()
    (directory / "logs" / "rank-0.log").write_text(
        "short\n" + "y" * 100_000 + "\nafter the long line\n"
    )
    os.mkfifo(directory / "logs" / "rank-1.log")
    (directory / "logs" / "rank-2.log").symlink_to(secret)
    (directory / "workers.jsonl").symlink_to(secret)
    (directory / "profiles").symlink_to("/etc")
    (directory / "data").mkdir()
    os.mkfifo(directory / "data" / "endless.jsonl")
    (directory / "checkpoints.json").mkdir()
    (directory / "outcome.json").write_text('{"outcome": ')
    (directory / "environment.json").write_text("[]")
