"""Discovery of GPUs without CUDA, because a CUDA context takes seconds and prevents forks.

Sources, in order: NVIDIA's management library through ``nvidia-ml-py``, the files of its driver
under ``/proc/driver/nvidia``, the files of AMD's driver under ``/sys/class/kfd`` (ROCm), and the
machine's type (the GPU of an Apple processor, which torch calls MPS). Not covered: accelerators of
other vendors, and listing MIG slices (a slice in ``CUDA_VISIBLE_DEVICES`` is used as given).
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from syncline.records import dataclass

_ROOT = Path("/")
_DRIVER_FILES = ("dev/nvidiactl", "proc/driver/nvidia", "dev/dxg")
"""Files of the driver, the last one in Windows Subsystem for Linux."""
_BRANDS = frozenset({"nvidia", "tesla", "geforce", "quadro", "graphics", "device"})


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as ``CUDA_VISIBLE_DEVICES`` names it."""

    id: str
    """Index ("0"), or UUID if the user listed UUIDs."""
    model: str
    """Short name such as "H200", "gfx942" or "MPS", for ``accelerator_type``; empty if unknown."""


class Nvml(Protocol):
    """The part of ``pynvml`` that is used; tests pass a fake."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> object: ...
    def nvmlShutdown(self) -> object: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object: ...
    def nvmlDeviceGetUUID(self, handle: object, /) -> str | bytes: ...
    def nvmlDeviceGetName(self, handle: object, /) -> str | bytes: ...


def discover(visible: str | None, *, root: Path = _ROOT, nvml: Nvml | None = None) -> list[Gpu]:
    """Return the GPUs that this process may use, in CUDA's order.

    ``visible`` is the value of ``CUDA_VISIBLE_DEVICES`` (``None`` if unset: all GPUs), ``root``
    replaces ``/``, and ``nvml`` replaces the management library. Never raises: with a broken
    driver, there are no GPUs.
    """
    if visible is not None and not visible.strip():
        return []
    library = nvml if nvml is not None else _load_nvml() if _has_driver(root) else None
    devices = _from_nvml(library) if library is not None else None
    if devices is None:
        devices = _from_proc(root) or _from_kfd(root) or _of_apple()
    return _select(devices, visible)


def model_name(product: str) -> str:
    """Return the short model name: "NVIDIA A100-SXM4-80GB" -> "A100", "NVIDIA GeForce RTX 4090" ->
    "RTX-4090".
    """
    words = [word for word in product.split() if word.lower() not in _BRANDS]
    for position, word in enumerate(words):
        if any(letter.isdigit() for letter in word):
            core = word.split("-")[0]
            # A bare number ("4090", "6000") is ambiguous without the series before it.
            return f"{words[position - 1]}-{core}" if core.isdigit() and position else core
    return "-".join(words)


def _has_driver(root: Path) -> bool:
    """Return True if there may be a driver; the library takes a hundredth of a second to load."""
    return any((root / path).exists() for path in _DRIVER_FILES)


def _load_nvml() -> Nvml | None:
    try:
        return cast(Nvml, importlib.import_module("pynvml"))
    except ImportError:
        return None


def _from_nvml(nvml: Nvml) -> list[Gpu] | None:
    """List all GPUs of the management library by UUID; ``None`` if library or driver are missing.

    They are in PCI bus order.
    """
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError, OSError):
        return None
    try:
        handles = [
            nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())
        ]
        return [
            Gpu(
                id=_decoded(nvml.nvmlDeviceGetUUID(handle)),
                model=model_name(_decoded(nvml.nvmlDeviceGetName(handle))),
            )
            for handle in handles
        ]
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _from_proc(root: Path) -> list[Gpu]:
    """List all GPUs of the driver: one directory per PCI address with an ``information`` file."""
    folder = root / "proc/driver/nvidia/gpus"
    try:
        addresses = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return []
    devices = []
    for address in addresses:
        try:
            text = (address / "information").read_text()
        except OSError:
            text = ""
        facts = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
        devices.append(Gpu(id=facts.get("GPU UUID", ""), model=model_name(facts.get("Model", ""))))
    return devices


def _from_kfd(root: Path) -> list[Gpu]:
    """List AMD's GPUs: the nodes of the driver's topology that are no CPUs, in its order."""
    folder = root / "sys/class/kfd/kfd/topology/nodes"
    try:
        nodes = sorted((entry for entry in folder.iterdir()), key=lambda entry: int(entry.name))
        texts = [(node / "properties").read_text() for node in nodes]
    except (OSError, ValueError):
        return []
    devices = []
    for text in texts:
        pairs = re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)
        facts = {name: int(value) for name, value in pairs}
        if facts.get("simd_count"):
            major, rest = divmod(facts.get("gfx_target_version", 0), 10_000)
            model = f"gfx{major}{rest // 100:x}{rest % 100:x}" if major else ""
            devices.append(Gpu(id=f"GPU-{facts.get('unique_id', 0):x}", model=model))
    return devices


def _of_apple() -> list[Gpu]:
    is_apple = sys.platform == "darwin" and platform.machine() == "arm64"
    return [Gpu(id="0", model="MPS")] if is_apple else []


def show_only(ids: Sequence[str]) -> None:
    """Show libraries only these GPUs, in this process and in those that it starts from now on."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(ids)
    os.environ.pop("HIP_VISIBLE_DEVICES", None)  # ROCm prefers it


def _select(devices: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    """Apply ``CUDA_VISIBLE_DEVICES`` as CUDA does: in its order, up to the first invalid entry."""
    if visible is None:
        return [Gpu(id=str(index), model=device.model) for index, device in enumerate(devices)]
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        device = _named(devices, entry)
        if device is None or any(gpu.id == entry for gpu in chosen):
            break
        chosen.append(Gpu(id=entry, model=device.model))
    return chosen


def _named(devices: Sequence[Gpu], entry: str) -> Gpu | None:
    """Return the device of an entry: an index, a unique prefix of a UUID, or a MIG slice."""
    if entry.isdigit():
        return devices[int(entry)] if int(entry) < len(devices) else None
    if entry.startswith("MIG-"):
        # Slices are not listed: the model is known only if all GPUs have the same.
        models = {device.model for device in devices}
        return Gpu(id=entry, model=models.pop() if len(models) == 1 else "") if devices else None
    matches = [device for device in devices if entry and device.id.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _decoded(text: str | bytes) -> str:
    """Decode the result of older bindings, which return bytes."""
    return text.decode(errors="replace") if isinstance(text, bytes) else text
