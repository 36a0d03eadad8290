"""`submit`: sends a program with its directory to a cluster, runs it there and shows what it
prints.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from syncline.cli import engines, job_api
from syncline.cli.jobs import follow_to_the_end, job_address_option
from syncline.cli.output import json_option, print_json, warn
from syncline.cli.packages import Package, pack


def runtime_environment(
    text: str | None,
    working_dir: str | None,
    variables: Sequence[str] = (),
    upload: Callable[[Package], None] = lambda package: None,
) -> dict[str, Any]:
    """The job's runtime environment: directories of this machine are given to `upload` and stand in
    it as packages. `variables` are NAME=VALUE and count before those in `text`.

    `syncline.init()` in the program finds the cluster by itself, because SYNCLINE_ADDRESS says so,
    unless the environment sets it. click.UsageError for what is no JSON object or no variable,
    CommandError for a directory that cannot be sent.
    """
    given, set_here = _object(text), _variables(variables)
    if working_dir is not None:
        given["working_dir"] = working_dir
    excludes = given.pop("excludes", ())
    if _is_here(given.get("working_dir")):
        package = pack(given["working_dir"], excludes=excludes)
        upload(package)
        given["working_dir"] = package.uri
    modules = []
    for module in given.get("py_modules", ()):
        if _is_here(module):
            package = pack(module, excludes=excludes, keep_name=True)
            upload(package)
            module = package.uri
        modules.append(module)
    if modules:
        given["py_modules"] = modules
    given["env_vars"] = {"SYNCLINE_ADDRESS": "auto", **given.get("env_vars", {}), **set_here}
    return given


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise click.UsageError(
            f'--runtime-env-json is no JSON ({error}): write for example \'{{"pip": ["einops"]}}\''
        ) from None
    if not isinstance(value, dict) or not isinstance(value.get("env_vars", {}), Mapping):
        raise click.UsageError(
            f"--runtime-env-json={text} is no JSON object with fields of a runtime environment"
        )
    return value


def _variables(texts: Sequence[str]) -> dict[str, str]:
    parts = [text.partition("=") for text in texts]
    for (name, separator, _), text in zip(parts, texts, strict=True):
        if not name or not separator:
            raise click.UsageError(f"--env={text} sets no variable: write --env=NAME=VALUE")
    return {name: value for name, _, value in parts}


def _is_here(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)


@click.command(
    name="submit",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@job_address_option
@click.option(
    "--working-dir",
    help="The directory that the program runs in, sent along; or the URI of a zip file.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="An environment variable of the program; may be repeated.",
)
@click.option(
    "--runtime-env-json", metavar="JSON", help='Runtime environment: \'{"pip": ["einops"]}\'.'
)
@click.option("--submission-id", help="The job's id; made up if not given.")
@click.option(
    "--num-cpus", type=float, help="CPUs that the program itself holds, besides what it asks for."
)
@click.option("--num-gpus", type=float, help="GPUs that it holds.")
@click.option("--no-wait", is_flag=True, help="Return when it is submitted.")
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def submit_command(
    context: click.Context,
    address: str | None,
    working_dir: str | None,
    variables: tuple[str, ...],
    runtime_env_json: str | None,
    submission_id: str | None,
    num_cpus: float | None,
    num_gpus: float | None,
    no_wait: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND on the cluster: syncline submit --working-dir . -- python train.py --epochs 3

    What it prints is shown until it ends; interrupting that leaves it running. Exit code: 0 if it
    succeeded, 1 if not. See also `syncline jobs`.
    """
    (
        _object(runtime_env_json),
        _variables(variables),
    )  # what is wrong with them is said before the cluster is looked for
    api = job_api.find(engines.chosen_address(address))
    environment = runtime_environment(runtime_env_json, working_dir, variables, api.upload)
    resources = {
        f"entrypoint_{name}": value
        for name, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus))
        if value is not None
    }
    job_id = api.submit(shlex.join(command), environment, submission_id, resources)
    if no_wait:
        if as_json:
            print_json({"id": job_id, "address": api.url})
        else:
            click.echo(f"Submitted {job_id} to {api.url}.")
            click.echo(f"  follow   syncline jobs logs -f {job_id} --address={api.url}")
            click.echo(f"  stop     syncline jobs stop {job_id} --address={api.url}")
        return
    warn(f"submitted {job_id} to {api.url}")
    context.exit(follow_to_the_end(api, job_id, as_json))
