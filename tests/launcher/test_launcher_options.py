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


def test_no_workers_are_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        options.parse(["-n", "0", "x.py"])
    assert ended.value.code == 2
    assert "--nproc-per-node 0: a job needs at least one worker" in capsys.readouterr().err


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
