"""Options of the update: gradients that are not finite, clipping, scaling, compilers, schedules."""

import functools

import numpy as np
import pytest
import torch

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from syncline.rl.columns.trees import leaves
from syncline.rl.modules.torch.torch_acting import TorchActing


def config(**training):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=2, lr=0.01)
        .training(**training)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def trained(made, iterations=2):
    algo = made.build_algo()
    for _ in range(iterations):
        algo.train()
    found = [np.asarray(leaf) for leaf in leaves(algo.get_weights())]
    algo.stop()
    return found


def assert_same(one, other, **tolerance):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


class BrokenGradients(PPOTorchLearner):
    """The first entry of every gradient is NaN."""

    def postprocess_gradients(self, gradients_dict):
        for gradient in gradients_dict.values():
            gradient.view(-1)[0] = torch.nan
        return super().postprocess_gradients(gradients_dict)


@pytest.mark.parametrize("skip", [True, False])
def test_gradients_that_are_not_finite_are_skipped_or_set_to_0(skip):
    made = config(learner_class=BrokenGradients).framework(torch_skip_nan_gradients=skip)
    before = trained(made, iterations=0)
    after = trained(made)
    assert all(np.isfinite(each).all() for each in after)
    are_equal = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert all(are_equal) == skip
    if not skip:
        for a, b in zip(before, after, strict=True):
            assert a.ravel()[0] == b.ravel()[0]


@pytest.mark.parametrize("by", ["global_norm", "norm", "value"])
def test_clipped_gradients_have_the_limit(by):
    class Recording(PPOTorchLearner):
        norms: list = []

        def apply_gradients(self, gradients_dict):
            gradients = [each.clone() for each in gradients_dict.values()]
            if by == "global_norm":
                self.norms.append(float(torch.stack([g.norm() for g in gradients]).norm()))
            elif by == "norm":
                self.norms.append(max(float(g.norm()) for g in gradients))
            else:
                self.norms.append(max(float(g.abs().max()) for g in gradients))
            super().apply_gradients(gradients_dict)

    trained(config(learner_class=Recording, grad_clip=1e-3, grad_clip_by=by))
    assert max(Recording.norms) == pytest.approx(1e-3, rel=1e-2)


class CpuScaler(torch.amp.GradScaler):
    def __init__(self):
        super().__init__("cpu", init_scale=1024.0)


def test_scaled_losses_give_the_same_update():
    plain = trained(config(grad_clip=0.5))
    scaled = trained(config(grad_clip=0.5).experimental(_torch_grad_scaler_class=CpuScaler))
    assert_same(plain, scaled, rtol=1e-4, atol=1e-6)


class Seeing(PPOTorchLearner):
    """Notes the type of matrix products in the loss, and of the outputs of the training pass."""

    def compute_loss_for_module(self, *, fwd_out, **arguments):
        a = torch.ones(2, 2)
        seen.append((a @ a).dtype)
        seen.append(fwd_out["action_dist_inputs"].dtype)
        return super().compute_loss_for_module(fwd_out=fwd_out, **arguments)


seen = []


@pytest.mark.parametrize("model", [{}, {"use_lstm": True, "lstm_cell_size": 4}])
def test_mixed_precision_gives_nearly_the_same_update(model):
    def made():
        return config(learner_class=Seeing).rl_module(model_config={"fcnet_hiddens": [8], **model})

    seen.clear()
    plain = trained(made(), iterations=1)
    assert set(seen) == {torch.float32}
    seen.clear()
    mixed = trained(made().framework(torch_autocast="bfloat16"), iterations=1)
    assert set(seen) == {torch.float32, torch.bfloat16}
    assert all(each.dtype == np.float32 for each in mixed)
    before = trained(made(), iterations=0)
    for start, one, other in zip(before, plain, mixed, strict=True):
        if np.abs(one - start).max() > 1e-3:
            assert not np.array_equal(one, other)
            assert np.corrcoef((one - start).ravel(), (other - start).ravel())[0, 1] > 0.8


def test_an_unknown_precision_is_an_error():
    with pytest.raises(ValueError, match="torch_autocast='half'"):
        config().framework(torch_autocast="half").build_algo()


class Infinite(PPOTorchLearner):
    """The losses are too large for their scale in the first update."""

    def compute_loss_for_module(self, **arguments):
        loss = super().compute_loss_for_module(**arguments)
        return loss * (1e38 if self.updates == 1 else 1.0)


def test_a_scaler_skips_steps_with_infinite_gradients():
    made = config(learner_class=Infinite).experimental(_torch_grad_scaler_class=CpuScaler)
    assert_same(trained(made, iterations=0), trained(made, iterations=1), rtol=0)
    changed = zip(trained(made, iterations=1), trained(made), strict=True)
    assert any((a != b).any() for a, b in changed)


@pytest.mark.long
def test_compiled_passes_give_the_same_update():
    plain = trained(config())
    compiled = trained(
        config().framework(torch_compile_learner=True, torch_compile_learner_dynamo_backend="eager")
    )
    assert_same(plain, compiled, rtol=1e-3, atol=1e-5)


def test_compiled_acting_gives_the_same_actions():
    made = config().framework(
        torch_compile_worker=True, torch_compile_worker_dynamo_backend="eager"
    )
    algo = made.build_algo()
    compiled = algo.env_runner._acting
    plain = TorchActing(algo.env_runner.module)
    random = np.random.default_rng(0)
    for explore in (True, False):
        obs, noise = random.random((2, 4), np.float32), random.random((2, plain.noise_size))
        one, _ = compiled.act(obs, noise, explore)
        other, _ = plain.act(obs, noise, explore)
        assert set(one) == set(other)
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5)
    algo.train()
    algo.stop()


def test_the_backend_of_the_compiler_is_that_of_the_configuration():
    made = config().framework(
        torch_compile_learner=True, torch_compile_learner_dynamo_backend="no_such_backend"
    )
    with pytest.raises(Exception, match="no_such_backend"):
        trained(made)


def test_schedulers_of_torch_step_once_an_update_and_are_restored(tmp_path):
    decay = functools.partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    algo = config().experimental(_torch_lr_scheduler_classes=[decay]).build_algo()

    def rate(of):
        optimizer = of.learner_group._learner.get_optimizer("default_policy")
        return optimizer.param_groups[0]["lr"]

    for expected in (0.005, 0.0025):
        algo.train()
        assert rate(algo) == pytest.approx(expected)
    path = algo.save_to_path(tmp_path / "checkpoint")
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    restored.train()
    assert rate(restored) == pytest.approx(0.00125)
    restored.stop()
