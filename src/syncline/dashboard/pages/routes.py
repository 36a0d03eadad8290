"""Which page answers where. The guard (`security`) has looked at every request before it gets
here.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from nicegui import app, ui

from syncline.dashboard import look
from syncline.dashboard.catalogue import Catalogue, Query
from syncline.dashboard.files import NoSuchFileError, find_file
from syncline.dashboard.look.theme import head_html
from syncline.dashboard.metrics import RunMetrics
from syncline.dashboard.pages.cluster import ClusterPage
from syncline.dashboard.pages.listing import show_list
from syncline.dashboard.pages.opened import OpenRuns
from syncline.dashboard.pages.run import Visit, show_run
from syncline.dashboard.pages.view import in_thread
from syncline.dashboard.security import MAY_ACT


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the dashboard shows."""

    catalogue: Catalogue
    """The runs."""
    address: str | None
    """The cluster, if the user named one."""


def register(shown: Shown) -> None:
    """Put the pages at their addresses. Once for a process: the framework has one application."""
    opened_runs = OpenRuns()
    metrics = RunMetrics(shown.catalogue)
    ui.add_head_html(head_html(), shared=True)

    @ui.page("/", response_timeout=10.0)
    async def runs_page(request: Request) -> None:
        await show_list(shown.catalogue, Query.of(request.query_params))

    @ui.page("/run/{storage}/{directory}", response_timeout=10.0)
    async def run_page(request: Request, storage: str, directory: str) -> None:
        visit = Visit(
            storage=_number(storage),
            directory=directory,
            may_act=_may_act(request),
            address=shown.address,
        )
        await show_run(shown.catalogue, opened_runs, visit)

    @ui.page("/cluster", response_timeout=10.0)
    async def cluster_page(request: Request) -> None:
        with look.frame("Cluster", place="/cluster", wide=True):
            page = ClusterPage(shown.address, _may_act(request))
        ui.timer(2.0, page.update)

    @app.get("/files/{storage}/{directory}/{folder}/{file}")
    async def file(storage: str, directory: str, folder: str, file: str) -> Response:
        try:
            place = shown.catalogue.place_of(_number(storage), directory)
            found = await in_thread(find_file, place, folder, file)
        except (NoSuchFileError, LookupError, ValueError) as error:
            return PlainTextResponse(look.printable(error, 500), status_code=404)
        return StreamingResponse(found.chunks(), headers=found.headers)

    @app.get("/metrics")
    async def prometheus() -> Response:
        content, content_type = await in_thread(metrics.text)
        return Response(content, media_type=content_type)

    @ui.page("/{rest:path}")
    def no_page(rest: str) -> None:
        ui.context.client.status_code = 404
        with look.frame("Not found"):
            look.Text("h1", "There is no such page", "sl-title")
            look.note(f"Nothing is at /{look.printable(rest, 200)}.")
            look.link("All runs", "/")


def _may_act(request: Request) -> bool:
    return request.scope.get(MAY_ACT) is True


def _number(text: str) -> int:
    """The number of a storage path; -1, which there is none of, for what is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
