"""Edits and notes of one module: names by scope, marks, strings, unchanged bytes."""

import re
import textwrap

import pytest

from syncline.cli.migration.rewrite import MARK, Unparsable, apply, examine


def migrated(program: str) -> str:
    edits, _ = examine(program)
    return apply(program, edits)


def noted(program: str) -> list[tuple[int, str, str]]:
    return [(note.line, note.name, note.kind) for note in examine(program)[1]]


def messages(program: str) -> str:
    return "\n".join(note.message for note in examine(program)[1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import ray\n", "import syncline\n"),
        ("import ray.train\n", "import syncline.train\n"),
        ("import ray.train as t\nt.report({})\n", "import syncline.train as t\nt.report({})\n"),
        ("import ray as r\nr.init()\n", "import syncline as r\nr.init()\n"),
        ("import ray as ray\nray.init()\n", "import syncline as ray\nray.init()\n"),
        ("import os, ray, sys\nray.init()\n", "import os, syncline, sys\nsyncline.init()\n"),
        ("from ray import train, tune as tn\n", "from syncline import train, tune as tn\n"),
        (
            "from ray.train.torch import TorchTrainer\n",
            "from syncline.train.torch import TorchTrainer\n",
        ),
        ("from ray.air import session\n", "from syncline.air import session\n"),
        (
            "from ray.util.sgd.torch import TorchTrainer\n",
            "from syncline.util.sgd.torch import TorchTrainer\n",
        ),
        ("from ray.tune import *\n", "from syncline.tune import *\n"),
        (
            "from ray import (\n    train,  # first\n    tune,\n)\n",
            "from syncline import (\n    train,  # first\n    tune,\n)\n",
        ),
        ("import ray\nray.get(ray.put(1))\n", "import syncline\nsyncline.get(syncline.put(1))\n"),
        (
            "import ray.tune, ray.data\nray.data.range(3)\n",
            "import syncline.tune, syncline.data\nsyncline.data.range(3)\n",
        ),
        (
            "import ray\n@ray.remote(num_cpus=1)\nclass A: ...\n",
            "import syncline\n@syncline.remote(num_cpus=1)\nclass A: ...\n",
        ),
        (
            'import ray\nprint(f"{ray.get(x)!r} ray")\n',
            'import syncline\nprint(f"{syncline.get(x)!r} ray")\n',
        ),
        ("import ray\ndel ray\n", "import syncline\ndel syncline\n"),
    ],
)
def test_imports_and_references_to_them_are_renamed(before: str, after: str) -> None:
    assert migrated(before) == after


@pytest.mark.parametrize(
    "program",
    [
        "import rayon, xray.ray\nfrom raylib import ray_cast\n",
        "from .ray import get\nfrom . import ray\nray.get(1)\n",
        "def f(ray):\n    return ray.get(1)\n",
        "for ray in rays:\n    print(ray.direction)\n",
        "self.ray.get()\nray = Ray()\nray.cast()\n",
        'text = "import ray; ray.get(x)"  # ray\n',
        "import syncline as ray\nray.get(1)\n",
        "ray.get(1)\n",
    ],
)
def test_names_other_than_the_import_stay(program: str) -> None:
    assert migrated(program) == program


def test_shadowed_names_and_attributes_stay_where_the_import_is_renamed() -> None:
    before = textwrap.dedent("""\
        '''ray.get is explained here'''
        import ray


        def cast(ray, sun=ray.put(1)):
            '''Uses ray.'''
            return ray.get(sun)


        class Scene:
            ray = None

            def light(self):
                return ray.get(self.ray), [ray.x for ray in self.rays], cast(ray=ray)


        def inner():
            ray = object()
            return ray.get
        """)
    expected = (
        before.replace("import ray", "import syncline")
        .replace("ray.put", "syncline.put")
        .replace("return ray.get(self.ray)", "return syncline.get(self.ray)")
        .replace("ray=ray)", "ray=syncline)")
    )
    assert migrated(before) == expected


def test_import_in_a_function_affects_that_function_only() -> None:
    before = "def f():\n    import ray\n    ray.init()\n\n\ndef g(ray):\n    ray.init()\n"
    assert (
        migrated(before)
        == "def f():\n    import syncline\n    syncline.init()\n\n\ndef g(ray):\n    ray.init()\n"
    )


def test_global_and_nonlocal_names_are_renamed() -> None:
    before = (
        "ray = None\n\ndef f():\n    global ray\n    import ray\n"
        "    def g():\n        return ray.get(1)\n"
    )
    assert migrated(before) == before.replace("ray", "syncline")


def test_fallback_none_of_a_failed_import_is_renamed() -> None:
    before = (
        "try:\n    import ray\nexcept ImportError:\n    ray = None\n"
        "if ray is not None:\n    ray.init()\n"
    )
    assert migrated(before) == before.replace("ray", "syncline")


@pytest.mark.parametrize(
    "rest",
    [
        "from fakes import ray\n",
        "ray = fake()\n",
        "syncline = connect()\n",
        "def f(syncline):\n    return ray.get(syncline)\n",
        '__all__ = ["ray"]\n',
    ],
)
def test_syncline_is_imported_as_ray_where_renaming_is_unsafe(rest: str) -> None:
    program = f"import ray\nimport ray.data\n{rest}ray.init()\n"
    expected = f"import syncline as ray\nimport syncline as ray, syncline.data\n{rest}ray.init()\n"
    assert migrated(program) == expected
    assert migrated(expected) == expected


def test_import_in_a_class_keeps_the_attribute_name() -> None:
    program = "class A:\n    import ray\n    x = ray.put(1)\n\nA.ray.get(A.x)\n"
    assert migrated(program) == program.replace("import ray", "import syncline as ray")


def test_names_in_string_annotations_are_renamed() -> None:
    before = (
        'import ray\ndef f(x: "list[ray.ObjectRef]", y: "ray") -> \'ray.actor.ActorHandle\': ...\n'
        'z: Literal["ray"] = "ray"\n'
    )
    after = (
        'import syncline\ndef f(x: "list[syncline.ObjectRef]", y: "syncline")'
        ' -> \'syncline.actor.ActorHandle\': ...\nz: Literal["ray"] = "ray"\n'
    )
    assert migrated(before.replace("\nz", "\nfrom typing import Literal\nz")) == after.replace(
        "\nz", "\nfrom typing import Literal\nz"
    )


@pytest.mark.parametrize(
    "line",
    [
        'importlib.import_module("ray.train")',
        '__import__("ray")',
        'tune = pytest.importorskip("ray.tune")',
        'mock.patch("ray.train.report")',
        'monkeypatch.setattr("ray.get", None)',
        'sys.modules["ray"]',
        '"ray" in sys.modules',
        'sys.modules.pop("ray.data", None)',
        'monkeypatch.setitem(sys.modules, "ray", None)',
        'logging.getLogger("ray.tune")',
    ],
)
def test_module_names_passed_to_functions_are_renamed(line: str) -> None:
    assert migrated(line + "\n") == line.replace('"ray', '"syncline') + "\n"


def test_other_strings_stay() -> None:
    program = (
        'setattr(module, "ray", 1)\nprint("ray", "ray.train")\n'
        'raise ImportError("install ray")\nx = {"ray": "ray.get"}\n'
    )
    assert migrated(program) == program
    assert noted(program) == []


@pytest.mark.parametrize(
    "program",
    [
        '# ä ray\r\nimport  ray ;x = "é"  # 雪\r\n\r\n'
        'ray . get( "雪",ray.put(1) ) \\\r\n  .foo\r\nx = 1',
        "import  ray\n\x0c\nray . get(ray.put(1))\n\x0cray\n    # the end\n  \n",
    ],
)
def test_all_other_bytes_stay_with_every_kind_of_line_end(program: str) -> None:
    after = re.sub(r"(?<!# ä )\bray\b", "syncline", program)
    assert migrated(program) == after


def test_missing_names_are_noted_and_marked_at_each_use() -> None:
    program = textwrap.dedent("""\
        import ray
        import ray.widgets.algorithms.ppo
        from ray.util.spark import setup_ray_cluster
        from ray import workflow, tune

        ray.init()
        ray.widgets.algorithms.ppo.PPO()
        if ray.is_initialized():
            ray.workflow.run(None)
        tune.Tuner.nonsense
        """)
    after = migrated(program)
    assert without_marks(after) == re.sub(r"\bray\b", "syncline", program)
    assert noted(program) == [
        (2, "ray.widgets", "no counterpart"),
        (3, "ray.util.spark", "no counterpart"),
        (4, "ray.workflow", "no counterpart"),
        (7, "ray.widgets", "no counterpart"),
        (9, "ray.workflow", "no counterpart"),
        (10, "ray.tune.Tuner.nonsense", "no counterpart"),
    ]
    marks = re.findall(rf"^( *){re.escape(MARK)} syncline has no `([\w.]+)`", after, re.MULTILINE)
    assert marks == [
        ("", "syncline.widgets"),
        ("", "syncline.util.spark"),
        ("", "syncline.workflow"),
        ("", "syncline.widgets"),
        ("    ", "syncline.workflow"),
        ("", "syncline.tune.Tuner.nonsense"),
    ]
    spark = messages(program).splitlines()[1]
    assert " ".join(spark.split()[:12]) in after.replace("\n#  ", "")  # the advice
    assert max(map(len, after.splitlines())) <= 100
    assert migrated(after) == after


def without_marks(text: str) -> str:
    return re.sub(rf"(?m)^[ \t]*{re.escape(MARK)}.*\n([ \t]*#   .*\n)*", "", text)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_marks_stand_above_statements_of_every_kind(newline: str) -> None:
    program = textwrap.dedent("""\
        class A:
        \tdef f(self):
        \t\tif x: ray.workflow.run(1)
        \t\telif ray.nonsense(): pass
        \t\tx = \"\"\"
        text \"\"\" + ray.nonsense(
        \t\t\tray.foo); y = \\
        \t\t\tray.bar
        @ray.nonsense
        def g(a: "ray.foo.Bar" = ray.bar): return ray.foo
        try:
        \timport ray.cross_language as other
        except ImportError:
        \tray = importlib.import_module("ray.llm")
        """)
    program = ("import ray\n" + program).replace("\n", newline)
    after = migrated(program)
    compile(after, "program", "exec")
    assert after.count(newline) == after.count("\n")
    rest = without_marks(after.replace(newline, "\n"))
    assert re.sub(r"\bsyncline( as ray)?\b", "ray", rest) == program.replace(newline, "\n")
    assert not re.search(r"(?m)^\s*(import|from) ray\b", rest)


def test_nothing_imports_ray_after_the_conversion() -> None:
    program = textwrap.dedent("""\
        import ray
        from ray.util.client import nonsense
        import ray.llm

        if not ray.util.client.ray.is_there():
            ray.init()
        """)
    after = migrated(program)
    assert not re.search(r"(?m)^\s*(import|from) ray\b", after)
    assert (
        f"{MARK} syncline has no `syncline.util.client.ray.is_there`: use\n#   "
        '`syncline.init(address="ray://host:10001")`\nif not syncline' in after
    )
    assert noted("import ray\nray.util.client.ray.is_connected()\n") == []


def test_note_gives_the_public_path_of_a_name() -> None:
    program = "from ray.train.torch.torch_trainer import TorchTrainer\n"
    assert "use `syncline.train.torch.TorchTrainer`" in messages(program)
    assert "`syncline.train.torch.TorchTrainer`\nfrom syncline" in migrated(program)


def test_unknown_arguments_are_noted() -> None:
    program = "from ray.train import RunConfig as R\nR(name='a', nonsense=1)\n"
    assert noted(program) == [(2, "ray.train.RunConfig(nonsense=…)", "argument")]


def test_environment_variables_and_command_lines_are_noted_only() -> None:
    program = textwrap.dedent("""\
        '''ray start'''
        os.environ["RAY_ADDRESS"] = "auto"
        os.environ["RAY_DEDUP_LOGS"] = "0"
        os.environ["TUNE_RESULT_DIR"] = "/runs"
        subprocess.run(["ray", "job", "submit", "--"])
        subprocess.run("cd /x && ray start --head", shell=True)
        print("x-ray start")
        """)
    assert migrated(program) == program
    assert noted(program) == [
        (2, "RAY_ADDRESS", "environment"),
        (3, "RAY_DEDUP_LOGS", "environment"),
        (4, "TUNE_RESULT_DIR", "environment"),
        (5, "ray job submit", "command"),
        (6, "ray start", "command"),
    ]
    assert "`SYNCLINE_ADDRESS`" in messages(program)
    assert "`SYNCLINE_STORAGE_PATH`" in messages(program)
    assert "`syncline submit`" in messages(program)


def test_version_and_ray_from_another_module_are_noted() -> None:
    assert noted("import ray\nfrom common import ray as r\nassert ray.__version__ > '2'\n") == [
        (2, "ray", "look"),
        (3, "ray.__version__", "look"),
    ]


@pytest.mark.parametrize(
    "program", ["import ray\ndef f(:\n", "import ray\nprint 'x'\n", "import ray\n\x00"]
)
def test_invalid_python_is_an_error(program: str) -> None:
    with pytest.raises(Unparsable):
        examine(program)


def test_programs_for_rllib_are_converted() -> None:
    program = textwrap.dedent("""\
        import ray
        from ray import tune
        from ray.rllib.agents.ppo import PPOTrainer
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.connectors.env_to_module import MeanStdFilter
        from ray.rllib.core.rl_module.torch import TorchRLModule
        from ray.rllib.models import ModelCatalog
        from ray.rllib.policy.sample_batch import SampleBatch
        import ray.rllib.env.multi_agent_env as multi

        class Mine(ray.rllib.core.rl_module.rl_module.RLModule):
            pass
        """)
    assert migrated(program) == program.replace("ray", "syncline")
    assert noted(program) == []


def test_names_of_rllib_without_counterpart_are_noted_with_their_remedy() -> None:
    program = textwrap.dedent("""\
        from ray.rllib.evaluation.rollout_worker import RolloutWorker
        from ray.rllib.policy.tf_policy import TFPolicy
        from ray.rllib.algorithms.ppo import PPOConfg
        subprocess.run("rllib train --run PPO && rllib rollout x", shell=True)
        """)
    assert noted(program) == [
        (1, "ray.rllib.evaluation.rollout_worker.RolloutWorker", "no counterpart"),
        (2, "ray.rllib.policy.tf_policy.TFPolicy", "no counterpart"),
        (3, "ray.rllib.algorithms.ppo.PPOConfg", "no counterpart"),
        (4, "rllib rollout", "command"),
        (4, "rllib train", "command"),
    ]
    assert "SingleAgentEnvRunner" in messages(program)
    assert "in torch" in messages(program)
    assert "`syncline rl train`" in messages(program)
