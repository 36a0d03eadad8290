"""Offline: record the episodes of a trained policy to Parquet, then clone it from them."""

import tempfile

from syncline.rllib.algorithms.bc import BCConfig
from syncline.rllib.algorithms.ppo import PPOConfig

if __name__ == "__main__":
    teacher_config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=8, lr=0.001)
        .debugging(seed=1)
    )
    teacher = teacher_config.build_algo()
    for _ in range(20):
        teacher.train()

    directory = tempfile.mkdtemp()
    recorder = (
        teacher_config.copy(copy_frozen=False)
        .offline_data(output=directory, output_max_rows_per_file=20)
        .evaluation(evaluation_interval=1, evaluation_duration=40)
        .build_algo()
    )
    recorder.set_weights(teacher.get_weights())
    evaluation = recorder.evaluate()
    recorder.stop()
    teacher.stop()
    print("teacher:", evaluation["env_runners"]["episode_return_mean"])

    student = (
        BCConfig()
        .environment("CartPole-v1")
        .offline_data(input_=directory, input_read_episodes=True)
        .training(train_batch_size_per_learner=512, lr=0.002)
        .evaluation(evaluation_interval=20, evaluation_duration=10)
        .build_algo()
    )
    for _ in range(20):
        result = student.train()
    print("student:", result["evaluation"]["env_runners"]["episode_return_mean"])
    student.stop()
