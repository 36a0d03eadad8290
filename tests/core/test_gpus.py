"""GPU discovery with a fake management library, with the driver's files, and without both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syncline import settings
from syncline.core import gpus


class FakeNvml:
    """A fake ``pynvml`` with two GPUs."""

    class NVMLError(Exception):
        """The library's error class."""

    names: tuple[str | bytes, ...] = ("NVIDIA H200", b"NVIDIA A100-SXM4-80GB")

    def __init__(self, *, driver: bool = True) -> None:
        self.driver = driver
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}abc"

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self.names[handle]


def ids(found: list[gpus.Gpu]) -> list[str]:
    return [gpu.id for gpu in found]


def test_all_gpus_of_the_library_with_short_models(tmp_path: Path) -> None:
    nvml = FakeNvml()
    assert gpus.discover(None, root=tmp_path, nvml=nvml) == [
        gpus.Gpu(id="0", model="H200"),
        gpus.Gpu(id="1", model="A100"),
    ]
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["1"]),
        ("1,0", ["1", "0"]),
        (" 0 , 1 ", ["0", "1"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,7,1", ["0"]),
        ("0,0", ["0"]),
        ("GPU-1a", ["GPU-1a"]),
        ("GPU-", []),
        ("MIG-5c89", ["MIG-5c89"]),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(
    tmp_path: Path, visible: str, expected: list[str]
) -> None:
    assert ids(gpus.discover(visible, root=tmp_path, nvml=FakeNvml())) == expected


def test_gpu_named_by_uuid_has_its_model(tmp_path: Path) -> None:
    assert gpus.discover("GPU-1a", root=tmp_path, nvml=FakeNvml())[0].model == "A100"


def test_driver_files_are_read_when_the_library_cannot_be_used(tmp_path: Path) -> None:
    for address, uuid in (("0000:41:00.0", "GPU-b"), ("0000:01:00.0", "GPU-a")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t {uuid}\n"
        )
    found = gpus.discover("GPU-b,0", root=tmp_path, nvml=FakeNvml(driver=False))
    assert found == [gpus.Gpu(id="GPU-b", model="H200"), gpus.Gpu(id="0", model="H200")]


def test_machine_without_driver_has_no_gpus(tmp_path: Path) -> None:
    assert gpus.discover(None, root=tmp_path, nvml=FakeNvml(driver=False)) == []
    assert gpus.discover("0", root=tmp_path, nvml=FakeNvml(driver=False)) == []


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000"),
        ("NVIDIA L4", "L4"),
        ("", ""),
    ],
)
def test_model_names_are_short(product: str, model: str) -> None:
    assert gpus.model_name(product) == model


def test_gpus_of_amd_are_nodes_with_vector_units(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, (units, target) in enumerate([(0, 0), (304, 90402), (96, 110000)]):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(
            f"cpu_cores_count {0 if units else 64}\nsimd_count {units}\n"
            f"gfx_target_version {target}\nunique_id {number * 255}\n"
        )
    assert gpus.discover(None, root=tmp_path) == [
        gpus.Gpu(id="0", model="gfx942"),
        gpus.Gpu(id="1", model="gfx1100"),
    ]
    assert ids(gpus.discover("1", root=tmp_path)) == ["1"]
    assert ids(gpus.discover("GPU-ff", root=tmp_path)) == ["GPU-ff"]


@pytest.mark.parametrize(("machine", "models"), [("arm64", ["MPS"]), ("x86_64", [])])
def test_apple_processors_have_one_gpu(
    machine: str, models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert [gpu.model for gpu in gpus.discover(None, root=tmp_path)] == models


def test_visible_gpus_are_those_of_cuda_or_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1,3")
    assert settings.visible_gpus() == "1,3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert settings.visible_gpus() == "0"
    gpus.show_only(["3"])
    assert settings.visible_gpus() == "3"
    assert "HIP_VISIBLE_DEVICES" not in os.environ
