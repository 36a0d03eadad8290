"""The command line of `syncline run` is torchrun's."""

import argparse

import pytest

from syncline.launcher import options, slurm

OWN = {
    *("help", "name", "storage_path", "no_record", "no_warm", "hang_report_s"),
    *("metric", "mode", "budget", "group", "as_json", "keep_best"),
}

LINES = (
    ["train.py"],
    ["--nnodes", "1:3", "--nproc-per-node=gpu", "--rdzv_backend=c10d", "train.py", "--nnodes", "7"],
    ["--rdzv-endpoint=a:1", "--rdzv-id", "j", "--rdzv-conf", "a=1,b=2", "-m", "pkg.train", "-m"],
    ["--max-restarts", "3", "--monitor_interval", "0.5", "--standalone", "--role", "r", "x.py"],
    ["-r", "3", "-t", "0:1,1:2", "--log-dir", "logs", "--local-ranks-filter", "0,1", "x.py", "-r"],
    ["--duplicate-stdout-filters", "a,b,,c", "--duplicate_stderr_filters", "d", "x.py"],
    ["--node-rank", "1", "--master-addr", "h", "--master-port", "5", "--local-addr", "l", "x.py"],
    ["--no-python", "--run-path", "--virtual-local-rank", "--numa-binding", "node", "x"],
    ["--signals-to-handle", "SIGTERM", "--shutdown-timeout", "9", "--logs-specs", "s", "x.py"],
    ["--event-log-handler", "h", "--start-method", "fork", "--stand", "x.py"],
)


def values(parsed: argparse.Namespace) -> dict[str, object]:
    return {name: value for name, value in vars(parsed).items() if name not in OWN}


@pytest.fixture(scope="module")
def torch_parser():
    run = pytest.importorskip("torch.distributed.run")
    return run.get_args_parser


def test_every_option_of_torchrun_exists_with_its_default(torch_parser):
    theirs = {name for action in torch_parser()._actions for name in action.option_strings}
    ours = {name for action in options.parser()._actions for name in action.option_strings}
    assert theirs - ours == set()
    assert {action.dest for action in torch_parser()._actions} | OWN == {
        action.dest for action in options.parser()._actions
    }


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_command_lines_mean_the_same_as_under_torchrun(torch_parser, line):
    assert values(options.parser().parse_args(line)) == values(torch_parser().parse_args(line))


def test_variables_are_defaults_as_under_torchrun(torch_parser, monkeypatch):
    variables = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "3",
        "PET_MAX_RESTARTS": "4",
        "PET_STANDALONE": "1",
        "PET_MODULE": "0",
        "PET_MASTER_PORT": "7",
        "PET_NODE_RANK": "1",
        "PET_SHUTDOWN_TIMEOUT": "8",
        "PET_MONITOR_INTERVAL": "2.5",
        "PET_LOG_DIR": "here",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    line = ["--nproc-per-node", "5", "train.py"]
    parsed = options.parser().parse_args(line)
    assert values(parsed) == values(torch_parser().parse_args(line))
    assert (parsed.max_restarts, parsed.standalone, parsed.nproc_per_node) == (4, True, "5")


def test_number_of_workers_is_known_unless_devices_must_be_counted():
    assert options.worker_count(options.parse(["-n", "4", "x.py"])) == 4
    assert options.worker_count(options.parse(["-n", "auto", "x.py"])) is None


def test_invalid_command_lines_exit_with_code_2(capsys):
    with pytest.raises(SystemExit) as ended:
        options.parse(["--nproc-per-nod3", "2", "x.py"])
    assert ended.value.code == 2
    assert "Usage: syncline run [OPTIONS]" in capsys.readouterr().err


def refusal(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error about a command line, which ends with code 2."""
    with pytest.raises(SystemExit) as ended:
        options.parse([*line, "x.py"])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--nproc-per-node", "0", "0: a job needs at least one worker per node"),
        ("--nproc-per-node", "-3", "-3: a job needs at least one worker per node"),
        ("--nproc-per-node", "1.5", "'1.5' is neither a number of workers nor one of auto"),
        ("--nnodes", "0", "at least 1 node"),
        ("--nnodes", "3:2", "3:2: pass at least 1 node, and MIN not above MAX"),
        ("--nnodes", "1:2:3", "'1:2:3' is neither a number of nodes nor MIN:MAX"),
        ("--hang-report-s", "-1", "-1 is below zero: pass a number of seconds, or 0 for never"),
        ("--hang-report-s", "nan", "'nan' is not a finite number"),
        ("--max-restarts", "-1", "-1 is too small: pass 0 or more"),
        ("--max-restarts", "x", "'x' is not a whole number"),
        ("--monitor-interval", "0", "0 is not above zero"),
        ("--monitor-interval", "inf", "'inf' is not a finite number"),
        ("--node-rank", "-1", "-1 is too small"),
        ("--master-port", "65536", "65536 is too large: pass 65535 or less"),
        ("--shutdown-timeout", "-5", "-5 is too small"),
        ("--local-ranks-filter", "0,a", "'0,a' is no list of local ranks"),
        ("--signals-to-handle", "SIGTERM,FOO", "'FOO' is no signal"),
        ("--budget", "-5m", "'-5m' is no time above zero"),
    ],
)
def test_a_value_out_of_range_is_refused_at_once(option, value, why, capsys):
    text = refusal([f"{option}={value}"], capsys)
    assert option in text
    assert why in text


@pytest.mark.parametrize("name", ["../../q", "/tmp/q", "a/b", ".hidden", "..", "", "n" * 256])
def test_a_name_that_is_no_directory_of_the_storage_path_is_refused(name, capsys):
    assert f"--name {name!r}" in refusal(["--name", name], capsys)


def test_a_node_that_the_others_do_not_expect_is_refused(capsys):
    line = ["--nnodes", "2", "--node-rank", "2", "--master-addr", "a"]
    assert "the ranks of 2 nodes are 0 to 1" in refusal(line, capsys)
    assert options.parse(["--node-rank", "2", "x.py"]).node_rank == 2  # torch ignores it


@pytest.mark.parametrize("variable", ["PET_STANDALONE", "PET_MAX_RESTARTS"])
def test_a_variable_that_is_no_number_is_named(variable, monkeypatch, capsys):
    monkeypatch.setenv(variable, "x")
    error = refusal([], capsys)
    assert "'x' is not a whole number" in error
    assert variable in error or "--max-restarts" in error


def test_help_lists_each_option_once(capsys):
    with pytest.raises(SystemExit):
        options.parse(["--help"])
    text = capsys.readouterr().out
    assert text.count("--max-restarts") >= 1
    assert "--max_restarts" not in text


SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "node[07-09]",
    "SLURM_NODEID": "2",
}


def completed(line: list[str], variables: dict[str, str]) -> argparse.Namespace:
    parsed = options.parser().parse_args(line)
    slurm.complete(parsed, variables)
    return parsed


def test_slurm_gives_nodes_rank_and_address():
    parsed = completed(["-n", "8", "train.py"], SLURM)
    assert (parsed.nnodes, parsed.node_rank, parsed.master_addr) == ("3", 2, "node07")
    assert parsed.master_port == completed(["train.py"], {**SLURM, "SLURM_NODEID": "0"}).master_port
    assert parsed.rdzv_id == "4711.0"


@pytest.mark.parametrize(
    "line",
    [
        ["--nnodes", "2", "x.py"],
        ["--standalone", "x.py"],
        ["--rdzv-backend", "c10d", "x.py"],
        ["--master-port", "1", "x.py"],
    ],
    ids=" ".join,
)
def test_options_win_over_slurm(line):
    assert values(completed(line, SLURM)) == values(options.parser().parse_args(line))


def test_one_node_of_slurm_needs_nothing():
    alone = {**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}
    assert completed(["x.py"], alone).nnodes == "1:1"


def test_several_tasks_per_node_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match="6 tasks on 3 nodes.*--ntasks-per-node=1"):
        completed(["x.py"], {**SLURM, "SLURM_STEP_NUM_TASKS": "6"})


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("node[03-07,9],login1", "node03"),
        ("gpu1,gpu2", "gpu1"),
        ("rack[2-4]-ib", "rack2-ib"),
        ("single", "single"),
        ("", ""),
    ],
)
def test_first_host_of_a_list(names, first):
    assert slurm.first_host(names) == first
