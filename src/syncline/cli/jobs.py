"""`jobs`: `list`, `logs` and `stop` for submitted programs."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TypeVar, cast

import click

from syncline.cli import engines
from syncline.cli.output import (
    FAILED,
    CommandError,
    ago,
    console,
    json_option,
    print_json,
    table,
    warn,
)
from syncline.job_submission import http_api
from syncline.job_submission.details import Job
from syncline.job_submission.errors import JobError, JobServerUnreachableError
from syncline.job_submission.http_api import ENDED, SUCCEEDED, JobApi
from syncline.job_submission.local_jobs import LocalJobs
from syncline.runs.durations import duration

STOP_S = 60.0
"""Seconds that `stop` waits for a job to end."""

job_address_option = click.option(
    "--address",
    metavar="URL",
    help=f"Head's dashboard: http://HOST:{http_api.DEFAULT_PORT} or HOST; 'local' for jobs on this "
    "machine without a cluster; default SYNCLINE_ADDRESS.",
)


Command = TypeVar("Command", bound=Callable[..., None])


def job_errors_shown(command: Command) -> Command:
    """Let a command show the errors of jobs as its own. A decorator."""

    @functools.wraps(command)
    def run(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
        except JobError as error:
            raise CommandError(str(error)) from error

    return cast(Command, run)


def jobs_at(address: str | None) -> JobApi | LocalJobs:
    """Return the jobs of a cluster, or with "local" those of this machine.

    Raises:
        JobError: No cluster accepts jobs at the address.
    """
    chosen = engines.chosen_address(address)
    if chosen == "local":
        return LocalJobs()
    try:
        return http_api.find(chosen)
    except JobServerUnreachableError as error:
        raise JobError(
            f"{error} For jobs on this machine without a cluster, pass --address=local."
        ) from error


def follow_until_end(api: JobApi | LocalJobs, job_id: str, as_json: bool) -> int:
    """Print the output of a job until it ends; return the command's exit code.

    With `as_json`, the output goes to stderr and the job to stdout.
    """
    out = sys.stderr if as_json else sys.stdout
    ends_line = True
    try:
        for piece in api.follow(job_id):
            click.echo(piece, nl=False, file=out)
            ends_line = piece.endswith("\n")
    except KeyboardInterrupt:
        click.echo(err=True)
        warn(
            f"{job_id} continues. Follow it with `syncline jobs logs -f {job_id}`, stop it with "
            f"`syncline jobs stop {job_id}` (both with the same --address)"
        )
        return 130
    if not ends_line:
        click.echo(file=out)
    job = api.job(job_id)
    if as_json:
        print_json(asdict(job))
    elif job.status == SUCCEEDED:
        took = duration(job.ended - job.started) if job.ended and job.started else "-"
        warn(f"{job_id} succeeded after {took}")
    else:
        # The message of a failed program quotes its output, which is already printed.
        reason = (job.message or "").partition("\n")[0].partition(", last available logs")[0]
        warn(f"{job_id} {job.status.lower()}{f': {reason}' if reason else ''}")
    return 0 if job.status == SUCCEEDED else FAILED


@click.group(name="jobs")
def jobs_command() -> None:
    """Manage programs that `syncline submit` has sent to a cluster."""


@jobs_command.command(name="list")
@job_address_option
@json_option
@job_errors_shown
def list_command(address: str | None, as_json: bool) -> None:
    """List every job that the cluster remembers, latest first."""
    api = jobs_at(address)
    jobs = api.jobs()
    if as_json:
        print_json({"jobs": [asdict(job) for job in jobs]})
    elif not jobs:
        click.echo(f"No jobs at {api.url}.")
    else:
        now = time.time()
        rows = [
            (job.id, job.status.lower(), ago(job.started, now), _took(job, now), job.command)
            for job in jobs
        ]
        console().print(
            table(
                ("id", "status", "age", "took", "command"),
                rows,
                right=("age", "took"),
                folding=("id", "command"),
            )
        )


def _took(job: Job, now: float) -> str:
    if job.started is None:
        return "-"
    return duration((job.ended or now) - job.started)


@jobs_command.command(name="logs")
@click.argument("job_id")
@click.option(
    "-f",
    "--follow",
    "following",
    is_flag=True,
    help="Follow the job until it ends; then exit with 1 if it failed.",
)
@job_address_option
@click.pass_context
@job_errors_shown
def logs_command(context: click.Context, job_id: str, following: bool, address: str | None) -> None:
    """Print the output of a job."""
    api = jobs_at(address)
    if following:
        context.exit(follow_until_end(api, job_id, False))
    click.echo(api.output(job_id), nl=False)


@jobs_command.command(name="stop")
@click.argument("job_id")
@job_address_option
@json_option
@click.pass_context
@job_errors_shown
def stop_command(context: click.Context, job_id: str, address: str | None, as_json: bool) -> None:
    """Stop a job and wait until it has ended. Exit code 1 if that takes more than a minute."""
    api = jobs_at(address)
    stopping = api.stop(job_id)
    deadline = time.monotonic() + STOP_S
    while (job := api.job(job_id)).status not in ENDED and time.monotonic() < deadline:
        time.sleep(http_api.PAUSE_S)
    if as_json:
        print_json(asdict(job))
    elif job.status not in ENDED:
        warn(f"{job_id} got a stop request but has not ended within {STOP_S:g} s")
    else:
        click.echo(
            f"{job_id} was stopped."
            if stopping
            else f"{job_id} had already ended: {job.status.lower()}."
        )
    context.exit(0 if job.status in ENDED else FAILED)
