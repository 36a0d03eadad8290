"""Memory by a flag: without velocities in the observation, an LSTM has to remember."""

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.core.rl_module.default_model_config import DefaultModelConfig
from syncline.rllib.examples.envs.classes.stateless_cartpole import StatelessCartPole

if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment(StatelessCartPole)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .training(train_batch_size_per_learner=2048, minibatch_size=512, num_epochs=4)
        .training(lr=0.001, gamma=0.98, lambda_=0.95, vf_loss_coeff=0.01)
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[32], use_lstm=True, lstm_cell_size=32, max_seq_len=16
            )
        )
        .debugging(seed=1)
        .build_algo()
    )
    for _ in range(10):
        result = algo.train()
    print("mean return:", result["env_runners"]["episode_return_mean"])
    algo.stop()
