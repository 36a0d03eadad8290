"""Shared browser, dashboard and programs of the browser tests, started on first use."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from syncline.testing.waiting import eventually
from tests.dashboard.browser.browser_harness import (
    FLAGS,
    Dashboard,
    Programs,
    Site,
    Watched,
    browser_path,
    prepare_runs,
    start_dashboard,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

WAIT_MS = 60_000
"""Milliseconds until a page must show something, also on a busy machine."""
KINDS = ("training", "restarted", "execution", "search")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = browser_path()
    if path is None:
        pytest.skip(
            "no Chromium is installed: `apt-get install chromium`, or another package of your "
            "system, brings it"
        )
    sync_api.expect.set_options(timeout=WAIT_MS)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def place(browser: Browser) -> Iterator[Site]:
    """Requested after the browser: without one, the directory is not needed."""
    root = Path(tempfile.mkdtemp(prefix="syncline-pages-"))
    made = Site(root)
    for directory in (made.runs, made.prepared, made.hostile):
        directory.mkdir()
    yield made
    eventually(lambda: removed(root), what="workers of killed programs are gone, and write no more")


def removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


@pytest.fixture(scope="package")
def programs(place: Site) -> Iterator[Programs]:
    made = Programs(place)
    for kind in KINDS:  # Start all together: starting is mostly waiting.
        made.start(kind)
    yield made
    made.kill_all()


@pytest.fixture(scope="package")
def dashboard(place: Site, programs: Programs) -> Iterator[Dashboard]:
    pytest.importorskip("nicegui")
    prepare_runs(place.prepared)
    made = start_dashboard(place)
    yield made
    made.process.kill()
    made.process.wait()
    assert made.process.stdout is not None
    made.process.stdout.close()


def new_context(browser: Browser) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    context.set_default_timeout(WAIT_MS)
    return context


@pytest.fixture(scope="package")
def signed_in(browser: Browser, dashboard: Dashboard) -> Iterator[BrowserContext]:
    """Context of a visitor who opened the printed URL."""
    context = new_context(browser)
    page = context.new_page()
    page.goto(f"{dashboard.url}/?token={dashboard.token}")
    page.close()
    yield context
    context.close()


@pytest.fixture
def watched(signed_in: BrowserContext, dashboard: Dashboard) -> Iterator[Watched]:
    """Page of a visitor with the token."""
    yield from watching(signed_in, dashboard)


@pytest.fixture
def as_stranger(browser: Browser, dashboard: Dashboard) -> Iterator[Watched]:
    """Page of a visitor of this machine without the token."""
    context = new_context(browser)
    yield from watching(context, dashboard)
    context.close()


def watching(context: BrowserContext, dashboard: Dashboard) -> Iterator[Watched]:
    made = Watched(context, dashboard.url)
    yield made
    wrong = list(made.wrong)
    made.page.close()
    assert not wrong, wrong
