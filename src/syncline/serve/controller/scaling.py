"""The wanted number of replicas of a deployment: fixed, or by its autoscaler. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncline.serve.config import AutoscalingContext
from syncline.serve.controller.autoscaler import Autoscaler, Decision
from syncline.serve.controller.messages import DeploymentTarget
from syncline.serve.controller.step import Step
from syncline.serve.wire.routes import DeploymentId


class Scaling:
    """Number of replicas of one deployment."""

    def __init__(self, id: DeploymentId, target: DeploymentTarget, step: Step) -> None:
        self._id = id
        self._step = step
        self._fixed = target.config.num_replicas
        self._gang_size = target.config.gang_size
        self._autoscaler: Autoscaler | None = None
        self._by_application = False
        self.queued = 0
        """Calls that callers could not send to a replica yet."""
        self.ongoing = 0
        """Calls that replicas have."""
        self.last_decision: Decision | None = None
        self.last_trigger = "CONFIG_UPDATE_COMPLETED"
        self.set_target(target)

    @property
    def wanted(self) -> int:
        """Number of replicas."""
        return self._fixed if self._autoscaler is None else self._autoscaler.current

    @property
    def may_be_zero(self) -> bool:
        """True if the deployment may have no replicas until a call comes."""
        scaler = self._autoscaler
        return scaler is not None and scaler.config.min_replicas == 0

    @property
    def autoscaler(self) -> Autoscaler | None:
        """The autoscaler; None for a fixed number."""
        return self._autoscaler

    def set_target(self, target: DeploymentTarget) -> None:
        """Apply other options; an autoscaler keeps its number of replicas within its bounds."""
        config, now = target.config.autoscaling_config, self._step.now
        self._gang_size = target.config.gang_size
        if config is None:
            self._autoscaler = None
            self._fixed = target.config.num_replicas
            self._step.deadlines.cancel(("scale", self._id))
            return
        policy = self._step.policy_of(target)
        if self._autoscaler is not None:
            self._note(self._autoscaler.configure(config, policy, now, self._gang_size))
        else:
            self._autoscaler = Autoscaler(
                self._id,
                config,
                policy,
                now=now,
                current=target.config.first_replicas,
                gang_size=self._gang_size,
            )
            self._autoscaler.record(now, queued=self.queued, ongoing=self.ongoing)
        self._plan_decision()

    def let_application_decide(self, decides: bool) -> None:
        """Leave the decisions to the policy of the application, if `decides`."""
        self._by_application = decides
        self._plan_decision()

    def stop(self) -> None:
        """Make no more decisions."""
        self._autoscaler = None
        self._step.deadlines.cancel(("scale", self._id))

    def set_fixed(self, count: int) -> None:
        """Set the number of replicas by hand.

        Raises ValueError for an autoscaled deployment, and for an incomplete gang.
        """
        if self._autoscaler is not None:
            raise ValueError(
                f"deployment {self._id} has an `autoscaling_config`, so its number of replicas "
                "cannot be set: change the bounds of its autoscaling"
            )
        if count % self._gang_size:
            raise ValueError(
                f"{count} replicas of deployment {self._id} are not a multiple of its "
                f"`gang_size={self._gang_size}`"
            )
        self._fixed = count

    def restore(self, count: int) -> None:
        """Set the number of replicas that a snapshot contains."""
        self._fixed = count
        if self._autoscaler is not None:
            self._autoscaler.current = count
            self._autoscaler.configure(
                self._autoscaler.config, self._autoscaler.policy, self._step.now, self._gang_size
            )
            self._plan_decision()

    # -- load

    def add_load(self, queued: int, ongoing: int) -> None:
        """Change the load by these differences, and decide if it matters."""
        self.queued += queued
        self.ongoing += ongoing
        if self._autoscaler is None:
            return
        now = self._step.now
        self._autoscaler.record(now, queued=self.queued, ongoing=self.ongoing)
        self._plan_decision()

    def decide(self, replicas: Sequence[str]) -> bool:
        """Decide now; return True if the number of replicas changed."""
        scaler = self._autoscaler
        if scaler is None or self._by_application:
            return False
        now = self._step.now
        try:
            decision = scaler.decide(now, replicas)
        except Exception as error:
            self._step.record(
                "policy_failed",
                f"The autoscaling policy of {self._id} failed: {type(error).__name__}: {error}",
                deployment=self._id,
                level="warning",
            )
            decision = None
        self._plan_decision()
        return self._note(decision)

    def context(self, replicas: Sequence[str]) -> AutoscalingContext | None:
        """Return the facts for the policy of an application; None for a fixed number."""
        if self._autoscaler is None:
            return None
        return self._autoscaler.context(self._step.now, replicas)

    def decide_by(self, desired: float, state: Mapping[str, object] | None, running: int) -> bool:
        """Apply the result of the application's policy; return True if the number changed."""
        scaler = self._autoscaler
        if scaler is None:
            return False
        return self._note(scaler.decide_by(self._step.now, desired, state, running))

    def _note(self, decision: Decision | None) -> bool:
        if decision is None:
            return False
        self.last_decision = decision
        grows = decision.after > decision.before
        self.last_trigger = "UPSCALE_COMPLETED" if grows else "DOWNSCALE_COMPLETED"
        self._step.must_save = True
        self._step.record(
            "scaled",
            f"Deployment {self._id}: {decision}.",
            deployment=self._id,
            before=decision.before,
            after=decision.after,
            desired=decision.desired,
            load=decision.load,
            queued=decision.queued,
            running=decision.running,
            reason=decision.reason,
        )
        return True

    def _plan_decision(self) -> None:
        if self._autoscaler is None or self._by_application:
            self._step.deadlines.cancel(("scale", self._id))
            return
        due_at = self._autoscaler.due_at(self._step.now)
        if due_at is None:
            self._step.deadlines.cancel(("scale", self._id))
        else:
            self._step.deadlines.set(("scale", self._id), due_at)
