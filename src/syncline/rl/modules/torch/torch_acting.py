"""`TorchActing`: acting of any module in torch.

Covered: modules with memory, nested actions, custom distributions, modules that return actions.
Algorithms with a different exploration subclass it and override `columns`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import first_leaf, map_tree
from syncline.rl.modules.distribution import Distribution, Noise
from syncline.rl.modules.torch.policy_weights import numpy_sampler
from syncline.rl.value_types import Arrays, Batch, ModuleType, Options, Space, Tree

_SAMPLING = ("sample", "logp", "sample_and_logp", "_get_torch_distribution")


class TorchActing:
    """Acting of a `TorchRLModule`. Implements `ActingPolicy`.

    The last noise value of a row seeds torch's generator during the call, for modules and
    distributions that draw their own random numbers; these depend on all rows of the call.
    """

    def __init__(self, module: ModuleType, compile_options: Options | None = None) -> None:
        self.module = module
        self._forwards = {False: module.forward_inference, True: module.forward_exploration}
        if compile_options is not None:
            self._forwards = {
                explore: torch.compile(forward, **compile_options)
                for explore, forward in self._forwards.items()
            }
        self._stateful = module.is_stateful()
        self._parameter = next(module.parameters(), None)
        self._explore_cls = _class_or_none(module.get_exploration_action_dist_cls)
        self._greedy_cls = _class_or_none(module.get_inference_action_dist_cls)
        self._sampler = numpy_sampler(self._explore_cls, module.action_space)
        noise = sampling_noise(self._explore_cls, module.action_space, module.model_config)
        self._takes_noise = noise is not None
        self.noise_size = 1 + (noise.size if noise is not None else 0)
        self.noise_kind: Literal["uniform", "normal"] = "uniform" if noise is None else noise.kind

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return torch.device("cpu") if self._parameter is None else self._parameter.device

    def act(
        self, obs: Arrays, noise: np.ndarray, explore: bool, state: Arrays = None
    ) -> tuple[Batch, Arrays]:
        """Return the columns of one step and the next state. See `ActingPolicy.act`."""
        if self.module.training:
            self.module.eval()  # `forward_train` switches back
        device = self.device
        batch = {Columns.OBS: map_tree(lambda leaf: to_tensor(leaf, device), obs)}
        if self._stateful:
            if state is None:
                state = self.initial_state(len(first_leaf(obs)))
            batch[Columns.OBS] = map_tree(lambda leaf: leaf.unsqueeze(1), batch[Columns.OBS])
            batch[Columns.STATE_IN] = map_tree(lambda leaf: to_tensor(leaf, device), state)
        with torch.inference_mode(), seeded(device, noise):
            output = dict(self._forward(batch, explore))
            next_state = output.pop(Columns.STATE_OUT, None)
            if self._stateful:
                output = {name: map_tree(_without_time, leaf) for name, leaf in output.items()}
            columns = self.columns(output, noise, explore)
        columns = {name: map_tree(to_numpy, column) for name, column in columns.items()}
        return columns, None if next_state is None else map_tree(to_numpy, next_state)

    def _forward(self, batch: Batch, explore: bool) -> Batch:
        output: Batch = self._forwards[explore](batch)
        return output

    def columns(self, output: Batch, noise: np.ndarray, explore: bool) -> Batch:
        """Return the columns of the module's output, including actions.

        Actions returned by the module are used directly; otherwise they are sampled or, without
        `explore`, greedy.
        """
        inputs = output.get(Columns.ACTION_DIST_INPUTS)
        cls = self._explore_cls if explore else self._greedy_cls
        if Columns.ACTIONS in output:
            if explore and Columns.ACTION_LOGP not in output and cls and inputs is not None:
                output[Columns.ACTION_LOGP] = cls.from_logits(inputs).logp(output[Columns.ACTIONS])
            return output
        if inputs is None or cls is None:
            raise ValueError(
                f"{type(self.module).__name__} returned {sorted(output) or 'nothing'} for acting. "
                "Return `actions`, or `action_dist_inputs` together with a distribution class "
                "(`self.action_dist_cls` in `setup`)."
            )
        if self._sampler is not None and cls is self._explore_cls and inputs.dim() == 2:
            drawn = self._sampler(to_numpy(inputs), noise[:, :-1], explore)
            return {**drawn, **output, Columns.ACTIONS: drawn[Columns.ACTIONS]}
        distribution = cls.from_logits(inputs)
        if not explore:
            output[Columns.ACTIONS] = distribution.to_deterministic().sample()
        elif self._takes_noise:
            numbers = to_tensor(noise[:, :-1], inputs.device, keep_double=True)
            output[Columns.ACTIONS], logp = distribution.sample_with_noise(numbers)
            output.setdefault(Columns.ACTION_LOGP, logp)
        else:
            output[Columns.ACTIONS] = actions = distribution.sample()
            output.setdefault(Columns.ACTION_LOGP, distribution.logp(actions))
        return output

    def initial_state(self, rows: int) -> Arrays:
        """Return the state at the start of episodes, [rows, ...]."""
        return map_tree(
            lambda leaf: np.repeat(np.asarray(leaf)[None], rows, axis=0),
            self.module.get_initial_state(),
        )


def sampling_noise(cls: type[Distribution], space: Space, model_config: object) -> Noise | None:
    """Return the noise that a distribution samples from; None if it draws its own numbers.

    A distribution draws its own numbers if a subclass overrides its sampling.
    """
    if cls is None or _replaces_sampling(cls):
        return None
    try:
        size = int(cls.required_input_dim(space, model_config=model_config))
        noise: Noise | None = cls.from_logits(torch.zeros(1, size)).noise
    except Exception:  # a custom class with other arguments
        return None
    return noise


def _replaces_sampling(cls: type) -> bool:
    """Return True if a class overrides sampling but not sampling with noise."""
    for each in cls.__mro__:
        if "sample_with_noise" in vars(each):
            return False
        if any(name in vars(each) for name in _SAMPLING):
            return True
    return True


def _class_or_none(get: Any) -> Any:
    """Return the class of the distributions, or None."""
    try:
        return get()
    except (NotImplementedError, ValueError):
        return None


@contextmanager
def seeded(device: torch.device, noise: np.ndarray) -> Iterator[None]:
    """Seed the generator of a device with the last noise column; restore it afterwards."""
    generator = (
        torch.cuda.default_generators[device.index or 0]
        if device.type == "cuda"
        else torch.default_generator
    )
    before = generator.get_state()
    bits = np.ascontiguousarray(noise[:, -1]).view(np.uint64)
    generator.manual_seed(int(np.bitwise_xor.reduce(bits) >> np.uint64(1)))
    try:
        yield
    finally:
        generator.set_state(before)


def to_tensor(array: object, device: torch.device, keep_double: bool = False) -> torch.Tensor:
    """Convert an array to a tensor on a device, if possible without a copy; doubles to floats."""
    array = np.asarray(array)
    if array.dtype == np.float64 and not keep_double:
        array = array.astype(np.float32)
    elif not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)


def to_numpy(value: object) -> Tree:
    """Convert a tensor to an array; return other values unchanged."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    if value.dtype is torch.bfloat16:
        value = value.float()
    return value.detach().cpu().numpy()


def _without_time(leaf: Tree) -> Tree:
    return leaf[:, 0]
