"""`ModuleDict`: modules by id, and the rules for ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, ItemsView, Iterator, KeysView, ValuesView
from typing import TypeVar

from syncline.rl.checkpointable import Checkpointable, StateDict
from syncline.rl.value_types import Components, ModuleType
from syncline.suggestions import did_you_mean

DEFAULT_MODULE_ID = "default_policy"
"""Id of a single module."""

R = TypeVar("R")


class ModuleDict(Checkpointable):
    """Dict-like access to modules by id, and their states."""

    def __init__(self) -> None:
        self._rl_modules: dict[str, ModuleType] = {}

    def foreach_module(
        self, func: Callable[..., R], *, return_dict: bool = False, **kwargs: object
    ) -> list[R] | dict[str, R]:
        """Return `func(module_id, module, **kwargs)` for each module."""
        results = {
            name: func(name, module.unwrapped(), **kwargs)
            for name, module in self._rl_modules.items()
        }
        return results if return_dict else list(results.values())

    def _check_exists(self, module_id: str) -> None:
        if module_id not in self._rl_modules:
            raise KeyError(
                f"Unknown module {module_id!r}.{did_you_mean(module_id, self._rl_modules)} "
                f"Modules: {', '.join(self._rl_modules) or 'none'}."
            )

    def __contains__(self, module_id: object) -> bool:
        return module_id in self._rl_modules

    def __getitem__(self, module_id: str) -> ModuleType:
        self._check_exists(module_id)
        return self._rl_modules[module_id]

    def get(self, module_id: str, default: object = None) -> ModuleType:
        """Return a module, or `default` if the id is unknown."""
        return self._rl_modules.get(module_id, default)

    def items(self) -> ItemsView[str, ModuleType]:
        """Return a view of the ids and modules."""
        return self._rl_modules.items()

    def keys(self) -> KeysView[str]:
        """Return a view of the ids."""
        return self._rl_modules.keys()

    def values(self) -> ValuesView[ModuleType]:
        """Return a view of the modules."""
        return self._rl_modules.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._rl_modules)

    def __len__(self) -> int:
        return len(self._rl_modules)

    def __bool__(self) -> bool:
        return True  # even without modules

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._rl_modules})"

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        **kwargs: object,
    ) -> StateDict:
        """Return the states by module."""
        return {
            name: module.get_state(
                components=self._get_subcomponents(name, components),
                not_components=self._get_subcomponents(name, not_components),
                inference_only=inference_only,
            )
            for name, module in self.get_checkpointable_components()
            if self._check_component(name, components, not_components)
        }

    def set_state(self, state: StateDict) -> None:
        """Set the states of the modules in `state`; other modules do not change."""
        for name, part in state.items():
            if name in self._rl_modules:
                self._rl_modules[name].set_state(part)

    def get_checkpointable_components(self) -> Components:
        """Return the modules by id."""
        return list(self._rl_modules.items())


def validate_module_id(module_id: str) -> None:
    """Check that an id is a valid directory name.

    Raises:
        ValueError: It is not valid.
    """
    if (
        not isinstance(module_id, str)
        or not module_id
        or re.search(r'[<>:"/\\|?*]', module_id)
        or module_id[-1] in " ."
    ):
        raise ValueError(
            f"{module_id!r} is not a valid module id, because checkpoints use it as a directory "
            'name. Use a string without any of <>:"/\\|?* that does not end in a dot or a space.'
        )
