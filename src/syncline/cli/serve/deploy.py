"""`deploy`, `shutdown`, `build`, `config`: applications of a serve that runs, and their files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from syncline.cli.output import CommandError, json_option, print_json, warn
from syncline.cli.serve import running
from syncline.cli.serve.sources import Source
from syncline.optional import load
from syncline.serve.application_files import described
from syncline.serve.client import ServeClient
from syncline.serve.controller.messages import ApplicationTarget, GetTarget
from syncline.serve.exceptions import RayServeException
from syncline.serve.program_client import ProgramClient


@click.command(name="deploy")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--no-wait", is_flag=True, help="Return before the applications run.")
@click.option(
    "-d",
    "--app-dir",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="Directory of the modules of applications without a working_dir.  [default: .]",
)
@running.serve_options
@json_option
def deploy_command(
    file: str, no_wait: bool, app_dir: str, address: str | None, pid: int | None, as_json: bool
) -> None:
    """Run the applications of a configuration FILE in the serve that runs.

    Applications that are not in the file are deleted; unchanged ones keep their processes. Exit
    code 1 if an application does not start; its former version then keeps running.
    """
    source = Source(target=file, directory=Path(app_dir).resolve())
    with running.needed_serve(address, pid) as client:
        is_local = isinstance(client, ProgramClient)
        targets, proxies = source.load(replicas_import_from_it=is_local)
        try:
            versions, warning = running.deploy(client, targets, proxies, replace_all=True)
            if warning:
                warn(warning)
            if not no_wait:
                running.wait_until_running(client, versions)
        except (OSError, RuntimeError, RayServeException) as error:
            raise CommandError(str(error)) from error
        urls = {target.name: running.url_of(client, target.route_prefix) for target in targets}
    if as_json:
        print_json({"applications": urls})
        return
    for name, url in urls.items():
        click.echo(f"{name} {'is being deployed' if no_wait else 'runs'} at {url}")


@click.command(name="shutdown")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@running.serve_options
@json_option
def shutdown_command(yes: bool, address: str | None, pid: int | None, as_json: bool) -> None:
    """Delete all applications and end serve; requests in flight are finished first.

    A program that only serves (`run`, `start`) ends as well.
    """
    with running.running_serve(address, pid) as client:
        if client is not None:
            if not yes and not as_json:
                click.confirm(_question(client), abort=True)
            client.shutdown()
    if as_json:
        print_json({"ended": client is not None})
    else:
        click.echo("serve was shut down" if client is not None else "serve is not running")


def _question(client: ServeClient) -> str:
    names = ", ".join(client.status().applications) or "no applications"
    where = f" in process {client.program.pid}" if isinstance(client, ProgramClient) else ""
    return f"End serve{where} ({names})?"


@click.command(name="build")
@click.argument("import_paths", metavar="IMPORT_PATH...", nargs=-1, required=True)
@click.option(
    "-d",
    "--app-dir",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="Directory from which modules are imported.  [default: .]",
)
@click.option("-o", "--output-path", metavar="FILE", help="File to write.  [default: stdout]")
def build_command(import_paths: Sequence[str], app_dir: str, output_path: str | None) -> None:
    """Write a configuration file for applications, "module:app", to edit and deploy."""
    targets: list[ApplicationTarget] = []
    for number, path in enumerate(import_paths, start=1):
        single = len(import_paths) == 1
        source = Source(
            target=path,
            directory=Path(app_dir).resolve(),
            name=None if single else f"app{number}",
            route_prefix=None if single else f"/app{number}",
        )
        targets += source.load()[0]
    content = {
        "proxy_location": "EveryNode",
        "http_options": {"host": "127.0.0.1", "port": 8000},
        "applications": [each.to_dict() for each in described(targets).applications],
    }
    command = f"syncline serve build {' '.join(import_paths)}"
    text = f"# Made by `{command}`.\n{as_yaml(content)}"
    if output_path is None:
        click.echo(text, nl=False)
        return
    try:
        Path(output_path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{output_path} cannot be written: {error}") from error
    click.echo(f"Wrote {output_path}: `syncline serve run {output_path}` runs it")


def as_yaml(content: object) -> str:
    """Return a value as YAML with keys in their order."""
    yaml = load("yaml", purpose="a configuration file", install="syncline[serve]")
    text: str = yaml.safe_dump(content, sort_keys=False, default_flow_style=False)
    return text


@click.command(name="config")
@click.option("-n", "--name", help="Only this application.")
@running.serve_options
@json_option
def config_command(name: str | None, address: str | None, pid: int | None, as_json: bool) -> None:
    """Print the configuration of the applications that run, as YAML.

    Applications of programs that called `serve.run` have no import path, so that only files of
    `run` and `deploy` can be deployed again.
    """
    with running.needed_serve(address, pid) as client:
        names = list(client.status().applications)
        if name is not None and name not in names:
            raise CommandError(
                f"application {name!r} does not run. Applications: {', '.join(names) or 'none'}"
            )
        targets = [client.request(GetTarget(name=each)) for each in names if name in (None, each)]
    found = described(each for each in targets if isinstance(each, ApplicationTarget))
    content = {"applications": [each.to_dict() for each in found.applications]}
    if as_json:
        print_json(content)
    else:
        sys.stdout.write(as_yaml(content))
