"""Page of a training run in a browser: live, with every action, and after a kill."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator

import pytest

from syncline.testing.waiting import eventually
from tests.dashboard.browser.browser_harness import Program, Programs, Site, Watched, address

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]


@pytest.fixture
def training(programs: Programs) -> Program:
    """A run with a report."""
    program = programs.alive("training")
    eventually(lambda: (program.run / "metrics.jsonl").exists(), what="the run has reported")
    return program


@pytest.fixture
def asleep(place: Site) -> Iterator[None]:
    """Rank 1 sleeps while rank 0 waits for it."""
    sign = place.root / "asleep"
    sign.touch()
    yield
    sign.unlink()


def section(page: Page, anchor: str) -> Locator:
    return page.locator("section", has=page.locator(f"h2#{anchor}"))


def fact(page: Page, label: str) -> Locator:
    return page.locator(".sl-fact", has=page.get_by_text(label, exact=True)).locator("dd")


def reports(page: Page) -> int:
    return int(re.sub(r"\D", "", fact(page, "Reports").inner_text()))


def test_what_a_live_run_reports_is_seen_as_it_comes(watched: Watched, training: Program) -> None:
    page = watched.go(training.address)
    expect(page.locator("h1 + .sl-badge")).to_have_text("running")
    first = reports(page)
    eventually(lambda: reports(page) > first, what="the page counts more reports")
    for metric in ("loss", "step", "nested/rows"):
        expect(
            section(page, "metrics").locator(f"[role=img][aria-label^='{metric}:'] canvas")
        ).to_be_visible()
    page.get_by_label("Filter metrics by name").fill("loss")
    expect(section(page, "metrics").locator("canvas")).to_have_count(1)
    expect(section(page, "workers").locator("tbody tr")).to_have_count(2)
    expect(section(page, "workers").locator(".sl-badge")).to_have_text(["running", "running"])
    expect(section(page, "times").locator(".sl-shares-bar").first).to_be_visible()
    expect(section(page, "datasets")).to_contain_text("ReadRange")
    expect(section(page, "configuration")).to_contain_text("***")
    assert "hunter2" not in page.content()


def test_a_log_is_followed_and_searched(watched: Watched, training: Program) -> None:
    page = watched.go(training.address)
    log = page.get_by_label("Log", exact=True)
    expect(log).to_contain_text(": loss")
    before = last_line(log)
    eventually(lambda: last_line(log) != before, what="the log grows")
    page.get_by_label("Show only lines that contain this").fill("NEEDLE")
    expect(log).not_to_contain_text("step")
    assert all("] needle" in line for line in log.inner_text().splitlines())
    expect(log).to_contain_text("[rank 0] needle")
    expect(log).to_contain_text("[rank 1] needle")
    page.get_by_label("Worker", exact=True).click()
    page.get_by_role("option", name="rank-1").click()
    expect(page.get_by_role("link", name="download rank-0.log")).to_have_count(0)
    expect(page.get_by_role("link", name="download rank-1.log")).to_be_visible()
    expect(log).not_to_contain_text("[rank")
    expect(log).to_contain_text("needle")


def last_line(log: Locator) -> str:
    return log.inner_text().splitlines()[-1]


def test_stack_traces_of_all_ranks_stand_side_by_side_and_the_one_that_sleeps_is_marked(
    watched: Watched, training: Program, asleep: None
) -> None:
    page = watched.go(training.address)
    eventually(lambda: is_marked(page), what="rank 1 is an outlier")
    odd, waiting = page.locator(".sl-outlier"), page.locator(".sl-stack")
    expect(odd).to_contain_text("doze")
    expect(waiting).to_contain_text("backward")
    left, right = odd.bounding_box(), waiting.bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] != right["x"]
    assert left["y"] == pytest.approx(right["y"], abs=2)


def is_marked(page: Page) -> bool:
    """Repeated until the ranks have reached their final frames."""
    page.get_by_role("button", name="Stack traces of all ranks").click()
    expect(page.get_by_text("Collecting stack traces")).to_be_hidden()
    headings = page.locator(".sl-stacks h3").all_inner_texts()
    return headings == ["rank 1 · outlier", "rank 0 · waiting for others"]


def test_profiles_are_recorded_and_open(watched: Watched, training: Program) -> None:
    page = watched.go(training.address)
    page.get_by_label("Seconds", exact=True).fill("3")
    page.get_by_label("Trace steps").fill("2")
    for button, ending in (
        ("CPU flame graph", "cpu.svg"),
        ("Memory profile", "memory.html"),
        ("Torch trace", "torch.json.gz"),
    ):
        page.get_by_role("button", name=button).click()
        expect(
            page.get_by_role("link", name=re.compile(rf"rank-0-{re.escape(ending)}$"))
        ).to_be_visible()
        expect(page.get_by_role("button", name=button)).to_be_enabled()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="cpu.svg").click()
    expect(opened.value.locator("svg text", has_text="train_rank").first).to_be_visible()
    opened.value.close()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="memory.html").click()
    expect(opened.value.get_by_role("link", name="memray flamegraph report")).to_be_visible()
    opened.value.close()
    with page.expect_download() as download:
        page.get_by_role("link", name="torch.json.gz").click()
    assert json.loads(gzip.decompress(download.value.path().read_bytes()))["traceEvents"]


def test_a_run_that_failed_shows_the_frames_of_the_worker(
    watched: Watched, programs: Programs
) -> None:
    program = programs.alive("restarted")
    eventually(lambda: (program.run / "run.json").exists(), what="the second run has begun")
    page = watched.go(address(0, f"{program.run.name}-errored"))
    expect(page.locator("h1 + .sl-badge")).to_have_text("errored")
    error = page.get_by_label("Error", exact=True)
    expect(error).to_contain_text("look_closely(rank)")
    expect(error).to_contain_text("ArithmeticError: rank 1 came to <b>odd</b>")
    expect(section(page, "workers").locator(".sl-badge")).to_contain_text(["errored"])


def test_a_run_that_is_killed_after_a_restart_says_so_and_keeps_its_error(
    watched: Watched, programs: Programs
) -> None:
    program = programs.alive("restarted")
    page = watched.go(program.address)
    expect(fact(page, "Restarts")).to_have_text("1")
    expect(page.locator("h1 + .sl-badge")).to_have_text("running")
    expect(page.get_by_label("Rank 1, attempt 1: traceback")).to_contain_text("look_closely")
    program.kill()
    expect(page.locator("h1 + .sl-badge")).to_have_text("killed")
    expect(section(page, "workers").locator(".sl-badge")).to_have_text(["killed", "killed"])
    expect(page.get_by_role("button", name="Stack traces of all ranks")).to_be_hidden()
    expect(section(page, "events")).to_contain_text("attempt 1 failed")


def test_after_the_program_was_killed_everything_that_it_recorded_is_there(
    watched: Watched, training: Program
) -> None:
    page = watched.go(training.address)
    training.kill()
    expect(page.locator("h1 + .sl-badge")).to_have_text("killed")
    page.reload()
    expect(page.locator("h1 + .sl-badge")).to_have_text("killed")
    expect(section(page, "metrics").locator("canvas").first).to_be_visible()
    expect(page.get_by_label("Log", exact=True)).to_contain_text(": loss")
    expect(section(page, "datasets")).to_contain_text("ReadRange")
