"""RLlib's module paths and names, and where they are defined here: data of `public_paths`."""

from __future__ import annotations

PATHS: dict[str, dict[str, str]] = {
    "": {"algorithms.ppo": "PPO"},
    "agents": {"algorithm.algorithm": "Algorithm:Trainer", "older.trainers": "with_common_config"},
    "agents.trainer": {
        "algorithm.algorithm": "Algorithm:Trainer",
        "older.trainers": "with_common_config COMMON_CONFIG",
    },
    "agents.trainer_template": {"older.trainers": "build_trainer"},
    "agents.registry": {"older.trainers": "get_agent_class get_agent_class:get_trainer_class"},
    "agents.callbacks": {"callbacks.callbacks": "RLlibCallback:DefaultCallbacks"},
    "agents.ppo": {
        "algorithms.ppo": "PPO:PPOTrainer",
        "older.trainers": "PPO_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.ppo.ppo": {
        "algorithms.ppo": "PPO:PPOTrainer",
        "older.trainers": "PPO_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.dqn": {
        "algorithms.dqn": "DQN:DQNTrainer",
        "older.trainers": "DQN_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.dqn.dqn": {
        "algorithms.dqn": "DQN:DQNTrainer",
        "older.trainers": "DQN_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.sac": {
        "algorithms.sac": "SAC:SACTrainer",
        "older.trainers": "SAC_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.a3c": {"algorithms.a2c": "A2C:A2CTrainer A2C:A3CTrainer"},
    "agents.ddpg": {"algorithms.td3": "TD3:TD3Trainer DDPG:DDPGTrainer"},
    "agents.marwil": {"algorithms.marwil": "MARWIL:MARWILTrainer", "algorithms.bc": "BC:BCTrainer"},
    "agents.cql": {"algorithms.cql": "CQL:CQLTrainer"},
    "agents.es": {"algorithms.es": "ES:ESTrainer"},
    "agents.ars": {"algorithms.ars": "ARS:ARSTrainer"},
    "agents.qmix": {"algorithms.qmix": "QMix:QMixTrainer"},
    "algorithms.callbacks": {"callbacks.callbacks": "RLlibCallback:DefaultCallbacks RLlibCallback"},
    "algorithms.registry": {
        "older.trainers": "get_agent_class:get_algorithm_class get_agent_class:get_trainer_class"
    },
    "models": {
        "older.torch.model_catalog": "ModelCatalog",
        "older.model_config": "MODEL_DEFAULTS",
        "older.torch.model_v2": "ModelV2",
        "older.torch.action_dists": "ActionDistribution",
        "older.preprocessors": "Preprocessor",
    },
    "models.catalog": {
        "older.torch.model_catalog": "ModelCatalog",
        "older.model_config": "MODEL_DEFAULTS",
    },
    "models.modelv2": {"older.torch.model_v2": "ModelV2"},
    "models.action_dist": {"older.torch.action_dists": "ActionDistribution"},
    "models.preprocessors": {
        "older.preprocessors": (
            "Preprocessor NoPreprocessor OneHotPreprocessor DictFlatteningPreprocessor "
            "TupleFlatteningPreprocessor preprocessor_class:get_preprocessor"
        )
    },
    "models.torch.torch_modelv2": {"older.torch.model_v2": "TorchModelV2"},
    "models.torch.recurrent_net": {
        "older.torch.model_v2": "RecurrentNetwork",
        "older.torch.networks": "LSTMWrapper",
    },
    "models.torch.attention_net": {"older.torch.networks": "GTrXLNet AttentionWrapper"},
    "models.torch.fcnet": {"older.torch.networks": "FullyConnectedNetwork"},
    "models.torch.visionnet": {"older.torch.networks": "VisionNetwork"},
    "models.torch.misc": {
        "older.torch.networks": "SlimFC SlimConv2d AppendBiasLayer normc_initializer same_padding"
    },
    "models.torch.torch_action_dist": {
        "older.torch.action_dists": (
            "TorchDistributionWrapper TorchCategorical TorchMultiCategorical "
            "TorchDiagGaussian TorchSquashedGaussian TorchBeta TorchDeterministic "
            "TorchDirichlet"
        )
    },
    "models.torch.torch_distributions": {
        "modules.torch.distributions.base": "TorchDistribution",
        "modules.torch.distributions.categorical": "TorchCategorical TorchMultiCategorical",
        "modules.torch.distributions.gaussian": "TorchDiagGaussian TorchSquashedGaussian",
        "modules.torch.distributions.deterministic": "TorchDeterministic",
        "modules.torch.distributions.multi": "TorchMultiDistribution",
    },
    "policy.policy": {"older.policy": "Policy", "older.policy_spec": "PolicySpec"},
    "policy": {"older.policy": "Policy", "older.policy_spec": "PolicySpec"},
    "policy.sample_batch": {
        "older.sample_batch": (
            "SampleBatch MultiAgentBatch concat_samples convert_ma_batch_to_sample_batch"
        ),
        "metrics.names": "DEFAULT_POLICY_ID",
    },
    "policy.view_requirement": {"older.view_requirement": "ViewRequirement"},
    "policy.rnn_sequencing": {"older.torch.model_v2": "add_time_dimension"},
    "evaluation": {"older.sample_batch": "SampleBatch MultiAgentBatch"},
    "algorithms": {
        "algorithm.algorithm": "Algorithm",
        "config.algorithm_config": "AlgorithmConfig",
        "algorithms.ppo": "PPO PPOConfig",
        "algorithms.alpha_zero": "AlphaZero AlphaZeroConfig",
        "algorithms.ars": "ARS ARSConfig",
        "algorithms.bc": "BC BCConfig",
        "algorithms.dreamerv3": "DreamerV3 DreamerV3Config",
        "algorithms.mbpo": "MBPO MBPOConfig",
        "algorithms.es": "ES ESConfig",
        "algorithms.mappo": "MAPPO MAPPOConfig",
        "algorithms.qmix": "QMix QMixConfig VDN VDNConfig",
        "algorithms.dqn": "DQN DQNConfig",
        "algorithms.sac": "SAC SACConfig",
        "algorithms.td3": "TD3 TD3Config DDPG DDPGConfig",
    },
    "algorithms.a3c": {"algorithms.retired": "A3C A3CConfig"},
    "algorithms.alpha_star": {"algorithms.retired": "AlphaStar AlphaStarConfig"},
    "algorithms.apex_ddpg": {"algorithms.retired": "ApexDDPG ApexDDPGConfig"},
    "algorithms.apex_dqn": {"algorithms.retired": "ApexDQN ApexDQNConfig"},
    "algorithms.bandit": {
        "algorithms.retired": "BanditLinTS BanditLinTSConfig BanditLinUCB BanditLinUCBConfig"
    },
    "algorithms.crr": {"algorithms.retired": "CRR CRRConfig"},
    "algorithms.ddppo": {"algorithms.retired": "DDPPO DDPPOConfig"},
    "algorithms.dreamer": {"algorithms.retired": "Dreamer DreamerConfig"},
    "algorithms.dt": {"algorithms.retired": "DT DTConfig"},
    "algorithms.leela_chess_zero": {"algorithms.retired": "LeelaChessZero LeelaChessZeroConfig"},
    "algorithms.maddpg": {"algorithms.retired": "MADDPG MADDPGConfig"},
    "algorithms.maml": {"algorithms.retired": "MAML MAMLConfig"},
    "algorithms.mbmpo": {"algorithms.retired": "MBMPO MBMPOConfig"},
    "algorithms.pg": {"algorithms.retired": "PG PGConfig"},
    "algorithms.r2d2": {"algorithms.retired": "R2D2 R2D2Config"},
    "algorithms.random_agent": {"algorithms.retired": "RandomAgent RandomAgentConfig"},
    "algorithms.simple_q": {"algorithms.retired": "SimpleQ SimpleQConfig"},
    "algorithms.slateq": {"algorithms.retired": "SlateQ SlateQConfig"},
    "algorithms.ddpg": {"algorithms.td3": "DDPG DDPGConfig"},
    "algorithms.ddpg.ddpg": {"algorithms.td3": "DDPG DDPGConfig"},
    "algorithms.dqn.dqn_learner": {"algorithms.dqn.torch.dqn_torch_learner": "*"},
    "algorithms.dqn.torch.default_dqn_torch_rl_module": {
        "algorithms.dqn.torch.dqn_torch_module": "DefaultDQNTorchRLModule"
    },
    "algorithms.dreamerv3.dreamerv3_learner": {
        "algorithms.dreamerv3.torch.dreamerv3_torch_learner": (
            "DreamerV3TorchLearner:DreamerV3Learner"
        )
    },
    "algorithms.dreamerv3.dreamerv3_rl_module": {
        "algorithms.dreamerv3.torch.dreamerv3_torch_rl_module": (
            "DreamerV3TorchRLModule:DreamerV3RLModule"
        )
    },
    "algorithms.sac.torch.default_sac_torch_rl_module": {
        "algorithms.sac.torch.sac_torch_module": "DefaultSACTorchRLModule"
    },
    "algorithms.appo.appo": {"algorithms.appo": "APPO APPOConfig"},
    "algorithms.appo.torch.appo_torch_learner": {
        "algorithms.appo.torch.appo_torch_learner": "APPOTorchLearner"
    },
    "algorithms.impala.impala": {"algorithms.impala": "IMPALA IMPALAConfig Impala ImpalaConfig"},
    "algorithms.impala.torch.impala_torch_learner": {
        "algorithms.impala.torch.impala_torch_learner": "IMPALATorchLearner"
    },
    "algorithms.a2c.a2c": {"algorithms.a2c": "A2C A2CConfig"},
    "algorithms.algorithm": {"algorithm.algorithm": "Algorithm"},
    "algorithms.algorithm_config": {
        "config.algorithm_config": "AlgorithmConfig",
        "config.section": "NotProvided",
    },
    "algorithms.ppo.ppo_learner": {
        "algorithms.ppo.torch.ppo_torch_learner": "PPOTorchLearner:PPOLearner"
    },
    "algorithms.ppo.ppo_catalog": {"modules.torch.catalog": "PPOCatalog"},
    "algorithms.ppo.torch.default_ppo_torch_rl_module": {
        "modules.torch.actor_critic": "DefaultPPOTorchRLModule"
    },
    "connectors.common": {
        "connectors.to_module.items": (
            "AddObservationsFromEpisodesToBatch AddStatesFromEpisodesToBatch "
            "AddTimeDimToBatchAndZeroPad AgentToModuleMapping BatchIndividualItems"
        ),
        "connectors.torch.tensors_torch": "NumpyToTensor TensorToNumpy",
    },
    "connectors.common.add_observations_from_episodes_to_batch": {
        "connectors.to_module.items": "AddObservationsFromEpisodesToBatch"
    },
    "connectors.common.add_states_from_episodes_to_batch": {
        "connectors.to_module.items": "AddStatesFromEpisodesToBatch"
    },
    "connectors.common.add_time_dim_to_batch_and_zero_pad": {
        "connectors.to_module.items": "AddTimeDimToBatchAndZeroPad"
    },
    "connectors.common.agent_to_module_mapping": {
        "connectors.to_module.items": "AgentToModuleMapping"
    },
    "connectors.common.batch_individual_items": {
        "connectors.to_module.items": "BatchIndividualItems"
    },
    "connectors.common.flatten_observations": {
        "connectors.to_module.preprocessors": "FlattenObservations"
    },
    "connectors.common.frame_stacking": {"connectors.to_module.frame_stacking": "FrameStacking"},
    "connectors.common.module_to_agent_unmapping": {
        "connectors.to_env.actions": "ModuleToAgentUnmapping"
    },
    "connectors.common.numpy_to_tensor": {"connectors.torch.tensors_torch": "NumpyToTensor"},
    "connectors.common.tensor_to_numpy": {"connectors.torch.tensors_torch": "TensorToNumpy"},
    "connectors.connector_pipeline_v2": {"connectors.pipeline": "ConnectorPipelineV2"},
    "connectors.connector_v2": {"connectors.connector": "ConnectorV2"},
    "connectors.env_to_module": {
        "connectors.to_module.items": (
            "AddObservationsFromEpisodesToBatch AddStatesFromEpisodesToBatch "
            "AddTimeDimToBatchAndZeroPad AgentToModuleMapping BatchIndividualItems"
        ),
        "connectors.pipeline": "EnvToModulePipeline",
        "connectors.to_module.preprocessors": (
            "FlattenObservations PrevActionsPrevRewards WriteObservationsToEpisodes"
        ),
        "connectors.to_module.mean_std_filter": "MeanStdFilter",
        "connectors.torch.tensors_torch": "NumpyToTensor",
    },
    "connectors.env_to_module.env_to_module_pipeline": {
        "connectors.pipeline": "EnvToModulePipeline"
    },
    "connectors.env_to_module.flatten_observations": {
        "connectors.to_module.preprocessors": "FlattenObservations"
    },
    "connectors.env_to_module.frame_stacking": {
        "connectors.to_module.frame_stacking": "FrameStackingEnvToModule"
    },
    "connectors.env_to_module.mean_std_filter": {
        "connectors.to_module.mean_std_filter": "MeanStdFilter"
    },
    "connectors.env_to_module.observation_preprocessor": {
        "connectors.to_module.preprocessors": (
            "MultiAgentObservationPreprocessor SingleAgentObservationPreprocessor"
        )
    },
    "connectors.env_to_module.prev_actions_prev_rewards": {
        "connectors.to_module.preprocessors": "PrevActionsPrevRewards"
    },
    "connectors.env_to_module.write_observations_to_episodes": {
        "connectors.to_module.preprocessors": "WriteObservationsToEpisodes"
    },
    "connectors.learner": {
        "connectors.to_learner.train_columns": (
            "AddColumnsFromEpisodesToTrainBatch AddInfosFromEpisodesToTrainBatch "
            "AddNextObservationsFromEpisodesToTrainBatch AddOneTsToEpisodesAndTruncate "
            "ComputeReturnsToGo"
        ),
        "connectors.to_module.items": (
            "AddObservationsFromEpisodesToBatch AddStatesFromEpisodesToBatch "
            "AddTimeDimToBatchAndZeroPad AgentToModuleMapping BatchIndividualItems"
        ),
        "connectors.torch.advantages_torch": "GeneralAdvantageEstimation",
        "connectors.pipeline": "LearnerConnectorPipeline",
        "connectors.torch.tensors_torch": "NumpyToTensor",
    },
    "connectors.learner.add_columns_from_episodes_to_train_batch": {
        "connectors.to_learner.train_columns": "AddColumnsFromEpisodesToTrainBatch"
    },
    "connectors.learner.add_infos_from_episodes_to_train_batch": {
        "connectors.to_learner.train_columns": "AddInfosFromEpisodesToTrainBatch"
    },
    "connectors.learner.add_next_observations_from_episodes_to_train_batch": {
        "connectors.to_learner.train_columns": "AddNextObservationsFromEpisodesToTrainBatch"
    },
    "connectors.learner.add_one_ts_to_episodes_and_truncate": {
        "connectors.to_learner.train_columns": "AddOneTsToEpisodesAndTruncate"
    },
    "connectors.learner.compute_returns_to_go": {
        "connectors.to_learner.train_columns": "ComputeReturnsToGo"
    },
    "connectors.learner.frame_stacking": {
        "connectors.to_module.frame_stacking": "FrameStackingLearner"
    },
    "connectors.learner.general_advantage_estimation": {
        "connectors.torch.advantages_torch": "GeneralAdvantageEstimation"
    },
    "connectors.learner.learner_connector_pipeline": {
        "connectors.pipeline": "LearnerConnectorPipeline"
    },
    "connectors.module_to_env": {
        "connectors.torch.actions_torch": "GetActions",
        "connectors.to_env.actions": (
            "ListifyDataForVectorEnv ModuleToAgentUnmapping NormalizeAndClipActions "
            "RemoveSingleTsTimeRankFromBatch UnBatchToIndividualItems"
        ),
        "connectors.pipeline": "ModuleToEnvPipeline",
        "connectors.torch.tensors_torch": "TensorToNumpy",
    },
    "connectors.module_to_env.get_actions": {"connectors.torch.actions_torch": "GetActions"},
    "connectors.module_to_env.listify_data_for_vector_env": {
        "connectors.to_env.actions": "ListifyDataForVectorEnv"
    },
    "connectors.module_to_env.module_to_env_pipeline": {
        "connectors.pipeline": "ModuleToEnvPipeline"
    },
    "connectors.module_to_env.normalize_and_clip_actions": {
        "connectors.to_env.actions": "NormalizeAndClipActions"
    },
    "connectors.module_to_env.remove_single_ts_time_rank_from_batch": {
        "connectors.to_env.actions": "RemoveSingleTsTimeRankFromBatch"
    },
    "connectors.module_to_env.unbatch_to_individual_items": {
        "connectors.to_env.actions": "UnBatchToIndividualItems"
    },
    "core": {
        "metrics.names": (
            "COMPONENT_ENV_RUNNER COMPONENT_ENV_TO_MODULE_CONNECTOR COMPONENT_EVAL_ENV_RUNNER "
            "COMPONENT_LEARNER COMPONENT_LEARNER_GROUP COMPONENT_METRICS_LOGGER "
            "COMPONENT_MODULE_TO_ENV_CONNECTOR COMPONENT_OPTIMIZER COMPONENT_RL_MODULE "
            "DEFAULT_AGENT_ID DEFAULT_MODULE_ID DEFAULT_POLICY_ID ALL_MODULES"
        ),
        "columns.names": "Columns",
    },
    "offline.offline_data": {"offline.offline_data": "OfflineData"},
    "offline.offline_prelearner": {"offline.prelearner": "OfflinePreLearner"},
    "core.columns": {"columns.names": "Columns"},
    "core.learner": {
        "learners.torch.torch_learner": "TorchLearner:Learner",
        "learners.group": "LearnerGroup",
    },
    "core.learner.learner": {"learners.torch.torch_learner": "TorchLearner:Learner"},
    "core.learner.learner_group": {"learners.group": "LearnerGroup"},
    "core.learner.torch": {"learners.torch.torch_learner": "TorchLearner"},
    "core.learner.torch.torch_learner": {"learners.torch.torch_learner": "TorchLearner"},
    "core.rl_module": {
        "modules.rl_module": "RLModule RLModuleSpec MultiRLModule MultiRLModuleSpec",
        "modules.default_model_config": "DefaultModelConfig",
    },
    "core.rl_module.apis": {
        "modules.apis": (
            "InferenceOnlyAPI QNetAPI SelfSupervisedLossAPI TargetNetworkAPI ValueFunctionAPI"
        )
    },
    "core.rl_module.apis.inference_only_api": {"modules.apis": "InferenceOnlyAPI"},
    "core.rl_module.apis.q_net_api": {"modules.apis": "QNetAPI"},
    "core.rl_module.apis.self_supervised_loss_api": {"modules.apis": "SelfSupervisedLossAPI"},
    "core.rl_module.apis.target_network_api": {
        "modules.apis": "TargetNetworkAPI TARGET_NETWORK_ACTION_DIST_INPUTS"
    },
    "core.rl_module.apis.value_function_api": {"modules.apis": "ValueFunctionAPI"},
    "core.rl_module.default_model_config": {"modules.default_model_config": "DefaultModelConfig"},
    "core.rl_module.multi_rl_module": {"modules.rl_module": "MultiRLModule MultiRLModuleSpec"},
    "core.rl_module.rl_module": {"modules.rl_module": "RLModule RLModuleSpec"},
    "core.rl_module.torch": {"modules.torch.torch_rl_module": "TorchRLModule"},
    "core.rl_module.torch.torch_rl_module": {"modules.torch.torch_rl_module": "TorchRLModule"},
    "env.external": {
        "envs.external.rllink": "RLlink get_rllink_message send_rllink_message",
        "runners.external_env_runner": (
            "ExternalEnvRunner:EnvRunnerServerForExternalInference ExternalEnvRunner"
        ),
    },
    "env.external.rllink": {
        "envs.external.rllink": "RLlink get_rllink_message send_rllink_message"
    },
    "env.external.env_runner_server_for_external_inference": {
        "runners.external_env_runner": "ExternalEnvRunner:EnvRunnerServerForExternalInference"
    },
    "env.tcp_client_inference_env_runner": {
        "runners.external_env_runner": "ExternalEnvRunner:TcpClientInferenceEnvRunner"
    },
    "env.external_env": {"envs.external.external_env": "ExternalEnv"},
    "env.policy_client": {"envs.external.policy_client": "PolicyClient"},
    "env.policy_server_input": {"envs.external.policy_server_input": "PolicyServerInput"},
    "env.env_context": {"envs.env_context": "EnvContext"},
    "env.multi_agent_env": {"envs.multi_agent_env": "MultiAgentEnv make_multi_agent"},
    "env.multi_agent_episode": {"episodes.multi_agent_episode": "MultiAgentEpisode"},
    "env.single_agent_episode": {"episodes.single_agent_episode": "SingleAgentEpisode"},
    "env.single_agent_env_runner": {"runners.single_agent_env_runner": "SingleAgentEnvRunner"},
    "env": {"envs.env_context": "EnvContext", "envs.multi_agent_env": "MultiAgentEnv"},
    "env.env_runner_group": {"runners.group": "EnvRunnerGroup"},
    "examples.envs.classes.action_mask_env": {"envs.examples.actions": "ActionMaskEnv"},
    "examples.envs.classes.cartpole_crashing": {"envs.examples.cart_poles": "CartPoleCrashing"},
    "examples.envs.classes.cartpole_sparse_rewards": {
        "envs.examples.cart_poles": "CartPoleSparseRewards"
    },
    "examples.envs.classes.cartpole_with_dict_observation_space": {
        "envs.examples.cart_poles": "CartPoleWithDictObservationSpace"
    },
    "examples.envs.classes.cliff_walking_wall_env": {"envs.examples.mazes": "CliffWalkingWallEnv"},
    "examples.envs.classes.correlated_actions_env": {
        "envs.examples.actions": "CorrelatedActionsEnv"
    },
    "examples.envs.classes.multi_agent.guess_the_number_game": {
        "envs.examples.games": "GuessTheNumberGame"
    },
    "examples.envs.classes.multi_agent.rock_paper_scissors": {
        "envs.examples.games": "RockPaperScissors"
    },
    "examples.envs.classes.multi_agent.tic_tac_toe": {"envs.examples.games": "TicTacToe"},
    "examples.envs.classes.multi_agent.two_step_game": {
        "envs.examples.games": "TwoStepGame TwoStepGameWithGroupedAgents"
    },
    "examples.envs.classes.multi_agent": {
        "envs.examples.multi_agent": (
            "MultiAgentCartPole MultiAgentMountainCar MultiAgentPendulum "
            "MultiAgentStatelessCartPole MultiAgentCartPoleWithDictObservationSpace "
            "MultiAgentNestedSpaceRepeatAfterMeEnv MultiAgentCartPoleCrashing"
        ),
        "envs.examples.games": "GuessTheNumberGame RockPaperScissors TicTacToe",
    },
    "examples.envs.classes.nested_space_repeat_after_me_env": {
        "envs.examples.actions": "NestedSpaceRepeatAfterMeEnv"
    },
    "examples.envs.classes.parametric_actions_cartpole": {
        "envs.examples.cart_poles": "ParametricActionsCartPole"
    },
    "examples.envs.classes.random_env": {
        "envs.examples.random_env": (
            "RandomMultiAgentEnv RandomEnv RandomLargeObsSpaceEnv RandomLargeObsSpaceEnvContActions"
        )
    },
    "examples.envs.classes.repeat_after_me_env": {"envs.examples.memory": "RepeatAfterMeEnv"},
    "examples.envs.classes.repeat_initial_obs_env": {"envs.examples.memory": "RepeatInitialObsEnv"},
    "examples.envs.classes.simple_corridor": {"envs.examples.mazes": "SimpleCorridor"},
    "examples.envs.classes.stateless_cartpole": {"envs.examples.memory": "StatelessCartPole"},
    "examples.envs.classes.stateless_pendulum": {"envs.examples.memory": "StatelessPendulum"},
    "examples.envs.classes.two_step_game": {
        "envs.examples.games": "TwoStepGame TwoStepGameWithGroupedAgents"
    },
    "utils.annotations": {
        "annotations": (
            "override PublicAPI DeveloperAPI OverrideToImplementCustomLogic "
            "OverrideToImplementCustomLogic_CallToSuperRecommended"
        )
    },
    "utils.checkpoints": {"checkpointable": "Checkpointable"},
    "utils.metrics": {"metrics.names": "*"},
    "utils.metrics.metrics_logger": {"metrics.metrics_logger": "MetricsLogger"},
}
"""RLlib's path -> module below `syncline.rl` -> its names; `A:B` is `A` under the name `B`."""
