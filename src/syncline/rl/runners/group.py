"""`EnvRunnerGroup`: the env runners of an algorithm, in its process and in others.

Covered: sampling, weights and calls on all runners, failures of runners. Not covered: when an
algorithm samples (`algorithms/`).
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from syncline.core import api
from syncline.core.remote import remote
from syncline.exceptions import GetTimeoutError, RayActorError
from syncline.rl.columns.trees import leaves
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.module_change import ModuleChange
from syncline.rl.envs.registry import resolve_env
from syncline.rl.modules.rl_module import MultiRLModule
from syncline.rl.runners.hang_detector import HangDetector, Verdict
from syncline.rl.runners.remote_env_runner import RemoteEnvRunner
from syncline.rl.runners.runner_handle import SAMPLES_PER_STATE, Call, RunnerHandle
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.threads import limited_threads
from syncline.rl.value_types import EnvRunnerType, Options, Space, StateDict

logger = logging.getLogger("syncline")

Calls = dict[int, tuple[str, tuple[object, ...]]]
"""Method and arguments by index of the runner."""
SamplesAhead = dict[int, Call]
"""Sample requests by index of the runner."""
MAX_LOGGED_WEIGHTS_BYTES = 64_000_000
"""Maximum bytes of weight versions kept to repeat samples after a failure."""
SEED_STRIDE = 7919
"""Difference between the seeds of a runner before and after it begins new episodes."""

STOP_S = 60.0
"""Seconds for runners to write recorded episodes when they stop."""
FIRST_DELAY_S = 0.05
"""Delay before the first restart of a runner; it doubles up to the configured maximum."""


class EnvRunnerGroup:
    """Env runners with the same configuration.

    Not thread-safe.

    Args:
        config: The algorithm's options.
        runner_class: Class of the runners.
        sleep: Waits for a number of seconds.
        clock: Monotonic seconds.
        observe: Called with the name and the fields of events, such as a dead runner.
    """

    def __init__(
        self,
        *,
        config: AlgorithmConfig,
        runner_class: type,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[..., None] = lambda event, **fields: None,
    ) -> None:
        self.config = config
        self._observe = observe
        self._sampling_s = 0.0
        self._runner_class = runner_class
        self._sleep = sleep
        self._clock = clock
        self.num_remote_worker_restarts = 0
        self._failures_in_row = 0
        self._remotes: dict[int, RunnerHandle] = {}
        for index in range(1, config.num_env_runners + 1):
            self._remotes[index] = self._handle(index)
        self._local: EnvRunnerType = None
        self._is_sharing = False
        if not self._remotes or (
            config.create_local_env_runner and config.create_env_on_local_worker
        ):
            with limited_threads(self._local_threads):
                self._local = runner_class(config=config, worker_index=0)

    @property
    def _local_threads(self) -> int:
        return max(int(self.config.num_cpus_for_main_process), 1)

    # -- runners

    @property
    def local_env_runner(self) -> EnvRunnerType:
        """The runner in this process; None if other processes sample."""
        return self._local

    @property
    def num_remote_env_runners(self) -> int:
        """Number of runners in other processes."""
        return len(self._remotes)

    def num_remote_workers(self) -> int:
        """Number of runners in other processes."""
        return len(self._remotes)

    def healthy_env_runner_ids(self) -> list[int]:
        """Return the indices of the runners in other processes."""
        return list(self._remotes)

    healthy_worker_ids = healthy_env_runner_ids

    def num_healthy_remote_workers(self) -> int:
        """Return the number of healthy runners in other processes."""
        return len(self._remotes)

    num_healthy_remote_env_runners = num_healthy_remote_workers

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return observation and action space by module id."""
        spaces: dict[str, tuple[Space, Space]] = (
            self._call_one(1, "get_spaces") if self._local is None else self._local.get_spaces()
        )
        return spaces

    # -- sampling

    def sample_steps(self, total: int | None = None, **options: object) -> list[Sample]:
        """Take `total` steps in all environments; return the samples in the order of runners.

        By default every runner takes its configured number of steps. A total that is not a
        multiple of the number of environments is rounded up.
        """
        return self._sample("sample_steps", self._lengths(total), options)

    def begin_steps(self, total: int | None = None, **options: object) -> SamplesAhead:
        """Request the samples of `sample_steps` from remote runners without waiting."""
        return {
            index: self._remotes[index].submit("sample", "sample_steps", length, options)
            for index, length in self._lengths(total).items()
        }

    def finish_steps(self, begun: SamplesAhead) -> list[Sample]:
        """Return the samples requested by `begin_steps`, in the order of runners."""
        began = time.perf_counter()
        samples = self._receive(begun)
        self._sampling_s += time.perf_counter() - began
        return samples

    def _lengths(self, total: int | None) -> dict[int, int]:
        """Return the number of steps per environment, by runner."""
        indices = self._remotes or [0]
        if total is None:
            return {index: self.config.get_rollout_fragment_length(index) for index in indices}
        each = -(-total // (self.config.num_envs_per_env_runner * len(indices)))
        return dict.fromkeys(indices, each)

    def sample_complete(self, total: int, **options: object) -> list[Sample]:
        """Sample complete episodes with at least `total` steps."""
        each = -(-total // max(len(self._remotes), 1))
        return self._sample("sample_complete", dict.fromkeys(self._remotes or [0], each), options)

    def sample_episodes(self, count: int, **options: object) -> list[Sample]:
        """Sample `count` complete new episodes."""
        indices = list(self._remotes) or [0]
        shares = {
            index: count // len(indices) + (place < count % len(indices))
            for place, index in enumerate(indices)
        }
        shares = {index: share for index, share in shares.items() if share}
        return self._sample("sample_episodes", shares, options)

    def _sample(
        self, method: str, amounts: dict[int, int], options: dict[str, object]
    ) -> list[Sample]:
        began = time.perf_counter()
        if not self._remotes:
            with limited_threads(self._local_threads):
                samples = [getattr(self._local, method)(amounts[0], **options)]
        else:
            samples = self._gather(
                {index: ("sample", (method, amount, options)) for index, amount in amounts.items()}
            )
        self._sampling_s += time.perf_counter() - began
        return samples

    def take_sampling_s(self) -> float:
        """Return the seconds spent waiting for samples since the last call."""
        sampling_s, self._sampling_s = self._sampling_s, 0.0
        return sampling_s

    # -- weights

    def share_modules(self, modules: MultiRLModule) -> None:
        """Make the local runner use the modules of the learner."""
        if self._local is not None:
            self._local.share_modules(modules)
            self._is_sharing = True

    def sync_weights(
        self,
        policies: Collection[str] | None = None,
        *,
        from_worker_or_learner_group: Any = None,
        **_: object,
    ) -> None:
        """Send the weights of the learner group or of another runner to all runners.

        Remote runners read them from shared memory before their next sample.
        """
        source = from_worker_or_learner_group
        version = source.weights_version
        weights = {}
        if self._remotes or not self._is_sharing or getattr(source, "is_remote", False):
            weights = source.get_weights(module_ids=policies)
        if self._local is not None:
            self._local.set_weights({} if self._is_sharing else weights, version)
        if self._remotes:
            reference = api.put(weights)
            size = sum(getattr(leaf, "nbytes", 0) for leaf in leaves(weights))
            for handle in self._remotes.values():
                kept = MAX_LOGGED_WEIGHTS_BYTES // max(size, 1)
                handle.samples_per_state = max(min(kept, SAMPLES_PER_STATE), 1)
                handle.submit("set_weights", reference, version, policies is not None)

    def check_change(self, change: ModuleChange) -> None:
        """Raise ValueError if the runners act with one module only."""
        if not hasattr(self._runner_class, "change_modules"):
            raise ValueError(
                f"{self._runner_class.__name__} acts with one module, so the module "
                f"{change.module_id!r} cannot be added to or removed from it. Set "
                "`multi_agent(policies=…, policy_mapping_fn=…)`, or change the learners only: "
                "`add_to_env_runners=False` (`remove_from_env_runners=False`)."
            )

    def change_modules(self, change: ModuleChange) -> None:
        """Add or remove a module in all runners, before their next sample."""
        if self._local is not None:
            self._local.change_modules(change)
        for handle in self._remotes.values():
            handle.submit("change_modules", change)

    def set_merged_connectors(self, state: StateDict) -> None:
        """Send the merged state of the connectors to all runners."""
        if self._local is not None and hasattr(self._local, "set_merged_connectors"):
            self._local.set_merged_connectors(state)
        for handle in self._remotes.values():
            handle.submit("set_merged_connectors", state)

    # -- fragments of asynchronous algorithms

    def request_fragment(self, index: int, **options: object) -> None:
        """Request a fragment of the configured length, queued after the runner's other requests."""
        method, amount = self._fragment_of(index)
        self._remotes[index].request(method, amount, options)

    def sample_fragment(self, **options: object) -> Sample:
        """Sample a fragment of the configured length with the local runner."""
        method, amount = self._fragment_of(0)
        (sample,) = self._sample(method, {0: amount}, options)
        return sample

    def _fragment_of(self, index: int) -> tuple[str, int]:
        """Return the method that samples a fragment, and its first argument."""
        length = self.config.get_rollout_fragment_length(index)
        if self.config.batch_mode == "complete_episodes":
            return "sample_complete", length * self.config.num_envs_per_env_runner
        return "sample_steps", length

    def num_requested(self, index: int) -> int:
        """Return the number of fragments that are requested from a runner and not delivered."""
        return self._remotes[index].num_requested

    def receive_fragments(self, timeout_s: float | None) -> list[tuple[int, Sample]]:
        """Wait until a runner delivers, and return all available samples by runner.

        Returns no samples after `timeout_s`. Runners that died or hang are restarted and sample the
        same fragments again.
        """
        found = [
            (index, handle.arrived.popleft())
            for index, handle in self._remotes.items()
            for _ in range(len(handle.arrived))
        ]
        waiting = {
            call.ref: (handle, call)
            for handle in self._remotes.values()
            if (call := handle.first_fragment()) is not None
        }
        if not waiting:
            return found
        limits = [0.0 if found else timeout_s, *(h.next_check_s() for h, _ in waiting.values())]
        ready, late = api.wait(
            list(waiting),
            num_returns=1,
            timeout=min((each for each in limits if each is not None), default=None),
        )
        if ready and late:
            ready += api.wait(late, num_returns=len(late), timeout=0)[0]
        for ref in ready:
            handle, call = waiting[ref]
            try:
                found.append((handle.index, handle.receive(call, None)))
            except RayActorError as error:
                self._restart(handle.index, error)
        if not ready:
            for handle, _ in waiting.values():
                self._judge(handle)
        return found

    # -- calls

    def foreach_env_runner(
        self,
        func: Callable[[EnvRunnerType], object] | str,
        *,
        kwargs: Options | None = None,
        local_env_runner: bool = True,
        remote_worker_ids: Sequence[int] | None = None,
        timeout_seconds: float | None = None,
        **_: object,
    ) -> list[Any]:
        """Call `func(runner)` in every runner; return the results.

        Args:
            func: Function of the runner, or the name of one of its methods.
            kwargs: Arguments of the method.
            local_env_runner: Also call the local runner.
            remote_worker_ids: Only call these remote runners.
            timeout_seconds: Seconds to wait for remote runners; results of runners that have not
                answered are omitted. 0 does not wait. None for no limit.
        """
        call = _method(func, kwargs or {}) if isinstance(func, str) else func
        results = []
        if local_env_runner and self._local is not None:
            results.append(call(self._local))
        indices = self._remotes if remote_worker_ids is None else remote_worker_ids
        sent = {
            index: self._remotes[index].submit("apply", call)
            for index in indices
            if index in self._remotes
        }
        return results + self._receive(sent, timeout_seconds)

    def foreach_env(self, func: Callable[[EnvRunnerType], object]) -> list[list[Any]]:
        """Call `func(env)` for every environment; return the results by runner."""
        return self.foreach_env_runner(lambda runner: [func(each) for each in runner.envs])

    def get_states(self) -> dict[int, StateDict]:
        """Return the states of all runners by index."""
        if not self._remotes:
            return {0: self._local.get_state()}
        calls: Calls = dict.fromkeys(self._remotes, ("get_state", ()))
        return dict(zip(self._remotes, self._gather(calls), strict=True))

    def set_states(self, states: dict[int, StateDict]) -> bool:
        """Set the states of the runners; return False if environments began new episodes."""
        indices = list(self._remotes) or [0]
        if sorted(states) != sorted(indices):
            return False
        if not self._remotes:
            return bool(self._local.set_state(states[0]))
        calls: Calls = {index: ("set_state", (states[index],)) for index in self._remotes}
        return all(self._gather(calls))

    def stop(self) -> None:
        """Stop all runners."""
        if self._local is not None:
            self._local.stop()
        if self.config.output:  # they write recorded episodes
            stopped = [handle.actor.stop.remote() for handle in self._remotes.values()]
            api.wait(stopped, num_returns=len(stopped), timeout=STOP_S)
        for handle in self._remotes.values():
            api.kill(handle.actor)
        self._remotes = {}

    # -- processes

    def _handle(self, index: int) -> RunnerHandle:
        config = self.config
        detector = HangDetector(config.sample_timeout_s, config.env_runner_health_probe_timeout_s)
        return RunnerHandle(index, functools.partial(self._start, index), detector)

    def _start(self, index: int, failures: int) -> Any:
        config = self.config
        actor_class = remote(RemoteEnvRunner).options(
            num_cpus=config.num_cpus_per_env_runner,
            num_gpus=config.num_gpus_per_env_runner,
            resources=config.custom_resources_per_env_runner or None,
            runtime_env=(
                {"env_vars": config.extra_python_environs_for_worker}
                if config.extra_python_environs_for_worker
                else None
            ),
        )
        sent = config.copy(copy_frozen=False)
        sent.env = resolve_env(config.env)  # names are registered only in this process
        if failures > 1 and config.seed is not None:
            sent.seed = config.seed + SEED_STRIDE * failures
        return actor_class.remote(self._runner_class, sent, index)

    def _call_one(self, index: int, method: str, *args: object) -> Any:
        return self._gather({index: (method, args)})[0]

    def _gather(self, calls: Calls) -> list[Any]:
        """Return the results of calls in the order of runners; restart runners that die or hang."""
        sent = {
            index: self._remotes[index].submit(method, *args)
            for index, (method, args) in calls.items()
        }
        return self._receive(sent)

    def _receive(self, sent: Mapping[int, Call], timeout_s: float | None = None) -> list[Any]:
        """Return the answers of runners in order; omit those that exceed a time limit."""
        results = {}
        ends = math.inf if timeout_s is None else self._clock() + timeout_s
        for index, call in sent.items():
            while index not in results and index in self._remotes and not call.is_abandoned:
                handle = self._remotes[index]
                left = max(ends - self._clock(), 0.0)
                check_s = handle.next_check_s()
                limit = left if check_s is None else min(left, check_s)
                try:
                    results[index] = handle.receive(call, None if math.isinf(limit) else limit)
                except GetTimeoutError:
                    if self._clock() >= ends:
                        self._abandon(index, call, timeout_s)
                    else:
                        self._judge(handle)
                except RayActorError as error:
                    self._restart(index, error)
        if results:
            self._failures_in_row = 0
        return list(results.values())

    def _abandon(self, index: int, call: Call, timeout_s: float | None) -> None:
        """Stop waiting for an answer; the call itself continues."""
        call.is_abandoned = True
        if timeout_s:
            logger.warning(
                "Env runner %d has not answered within `timeout_seconds=%s`. Its result is "
                "omitted; the call continues, and later calls wait for its end.",
                index,
                timeout_s,
            )

    def _judge(self, handle: RunnerHandle) -> None:
        """Log a runner that does not answer; kill and restart it if it takes no steps."""
        config = self.config
        limit, grace = config.sample_timeout_s, config.env_runner_health_probe_timeout_s
        verdict = handle.verdict()
        if verdict is Verdict.REPORT:
            logger.warning(
                "%s\nIts limit is `sample_timeout_s=%s`. Waiting continues; if it takes no step "
                "for %s s, it is killed and restarted.",
                handle.describe(),
                limit,
                (limit or 0.0) + grace,
            )
        elif verdict is Verdict.RESTART:
            text = (
                f"{handle.describe()}\nIt took no step for more than `sample_timeout_s={limit}` + "
                f"`env_runner_health_probe_timeout_s={grace}` seconds and was killed as hanging. "
                "Raise `env_runners(sample_timeout_s=…)` if steps may take this long."
            )
            api.kill(handle.actor)
            self._restart(handle.index, EnvRunnerHangs(text))

    def _restart(self, index: int, error: Exception) -> bool:
        """Restart a dead runner; return False if the others continue without it."""
        config = self.config
        self._failures_in_row += 1
        if config.ignore_env_runner_failures and not config.restart_failed_env_runners:
            logger.warning("Env runner %d died; the others continue: %s", index, error)
            self._observe("env_runner_lost", runner=index, error=str(error)[:2000])
            del self._remotes[index]
            if not self._remotes:
                raise error
            return False
        if (
            not config.restart_failed_env_runners
            or self.num_remote_worker_restarts >= config.max_num_env_runner_restarts
            or self._failures_in_row > config.num_consecutive_env_runner_failures_tolerance
        ):
            raise error
        delay = min(
            FIRST_DELAY_S * 2 ** (self._failures_in_row - 1),
            config.delay_between_env_runner_restarts_s,
        )
        self.num_remote_worker_restarts += 1
        logger.warning("Env runner %d died and is restarted in %.2f s: %s", index, delay, error)
        self._observe("env_runner_restarted", runner=index, delay_s=delay, error=str(error)[:2000])
        self._sleep(delay)
        if not self._remotes[index].restart():
            logger.warning(
                "Env runner %d begins new episodes: %s",
                index,
                "it failed twice in a row, and its episodes may be the reason."
                if self._remotes[index].failures_in_row > 1
                else "the state of its environments cannot be saved.",
            )
        return True


class EnvRunnerHangs(RayActorError):
    """Raised if an env runner took no step for longer than its limit and was killed."""


def _method(name: str, kwargs: Options) -> Callable[[EnvRunnerType], Any]:
    return lambda runner: getattr(runner, name)(**kwargs)
