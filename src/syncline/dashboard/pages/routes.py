"""URLs of the pages. The guard (`security`) has checked every request before."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from nicegui import app, ui

from syncline.dashboard import widgets
from syncline.dashboard.downloads import FileNotServedError, find_file
from syncline.dashboard.pages.cluster_page import ClusterPage
from syncline.dashboard.pages.compare_page import keys_of, show_comparison
from syncline.dashboard.pages.run_list_page import show_list
from syncline.dashboard.pages.run_page import show_run
from syncline.dashboard.pages.run_view import OpenRuns, Visit, in_thread
from syncline.dashboard.pages.serving_list_page import show_serving
from syncline.dashboard.prometheus import RunMetrics
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import Query
from syncline.dashboard.security import MAY_ACT
from syncline.dashboard.widgets.elements import head_html


def register(run_index: RunIndex, address: str | None) -> None:
    """Register the pages. Call it once per process: the framework has one application.

    Args:
        run_index: Index of the runs.
        address: Address of the cluster, if the user specified one.
    """
    opened_runs = OpenRuns()
    metrics = RunMetrics(run_index)
    ui.add_head_html(head_html(), shared=True)

    @ui.page("/", response_timeout=10.0)
    async def runs_page(request: Request) -> None:
        may_act = request.scope.get(MAY_ACT) is True
        await show_list(run_index, Query.of(request.query_params), may_act)

    @ui.page("/compare", response_timeout=10.0)
    async def compare_page(request: Request) -> None:
        keys = keys_of(request.query_params.getlist("run"))
        await show_comparison(run_index, opened_runs, keys)

    @ui.page("/run/{storage}/{directory}", response_timeout=10.0)
    async def run_page(request: Request, storage: str, directory: str) -> None:
        visit = Visit(
            storage=_number(storage),
            directory=directory,
            may_act=request.scope.get(MAY_ACT) is True,
            address=address,
            query=dict(request.query_params),
        )
        await show_run(run_index, opened_runs, visit)

    @ui.page("/serving", response_timeout=10.0)
    async def serving_page(request: Request) -> None:
        await show_serving(run_index, opened_runs, request.scope.get(MAY_ACT) is True)

    @ui.page("/cluster", response_timeout=10.0)
    async def cluster_page() -> None:
        with widgets.frame("Cluster", place="/cluster", wide=True):
            page = ClusterPage(address)
        ui.timer(2.0, page.update)

    @app.get("/files/{storage}/{directory}/{folder}/{file}")
    async def file(storage: str, directory: str, folder: str, file: str) -> Response:
        try:
            place = run_index.run_directory(_number(storage), directory)
            found = await in_thread(find_file, place, folder, file)
        except (FileNotServedError, LookupError, ValueError) as error:
            return PlainTextResponse(widgets.printable(error, 500), status_code=404)
        return StreamingResponse(found.chunks(), headers=found.headers)

    @app.get("/metrics")
    async def prometheus() -> Response:
        content, content_type = await in_thread(metrics.text)
        return Response(content, media_type=content_type)

    @ui.page("/{rest:path}")
    def no_page(rest: str) -> None:
        ui.context.client.status_code = 404
        with widgets.frame("Not found"):
            widgets.Text("h1", "Page not found", "sl-title")
            widgets.note(f"There is no page at /{widgets.printable(rest, 200)}.")
            widgets.link("All runs", "/")


def _number(text: str) -> int:
    """Return the number of a storage path; -1 for invalid text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
