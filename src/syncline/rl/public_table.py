"""RLlib's module paths and names, mapped to their definitions; data of `public_paths`."""

from __future__ import annotations

PATHS: dict[str, dict[str, str]] = {
    "": {
        "algorithms.ppo": "PPO",
        "envs.external.external_env": "ExternalEnv",
        "envs.multi_agent_env": "MultiAgentEnv",
        "older.policy": "Policy",
        "older.sample_batch": "SampleBatch",
    },
    "agents": {"algorithm.algorithm": "Algorithm:Trainer", "older.trainers": "with_common_config"},
    "agents.a3c": {"algorithms.a2c": "A2C:A2CTrainer A2C:A3CTrainer"},
    "agents.ars": {"algorithms.ars": "ARS:ARSTrainer"},
    "agents.callbacks": {"callbacks.callbacks": "RLlibCallback:DefaultCallbacks"},
    "agents.cql": {"algorithms.cql": "CQL:CQLTrainer"},
    "agents.ddpg": {"algorithms.td3": "TD3:TD3Trainer DDPG:DDPGTrainer"},
    "agents.dqn": {
        "algorithms.dqn": "DQN:DQNTrainer",
        "older.trainers": "DQN_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.dqn.dqn": {
        "algorithms.dqn": "DQN:DQNTrainer",
        "older.trainers": "DQN_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.es": {"algorithms.es": "ES:ESTrainer"},
    "agents.marwil": {"algorithms.marwil": "MARWIL:MARWILTrainer", "algorithms.bc": "BC:BCTrainer"},
    "agents.ppo": {
        "algorithms.ppo": "PPO:PPOTrainer",
        "older.trainers": "PPO_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.ppo.ppo": {
        "algorithms.ppo": "PPO:PPOTrainer",
        "older.trainers": "PPO_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.qmix": {"algorithms.qmix": "QMix:QMixTrainer"},
    "agents.registry": {"older.trainers": "get_agent_class get_agent_class:get_trainer_class"},
    "agents.sac": {
        "algorithms.sac": "SAC:SACTrainer",
        "older.trainers": "SAC_DEFAULT_CONFIG:DEFAULT_CONFIG",
    },
    "agents.trainer": {
        "algorithm.algorithm": "Algorithm:Trainer",
        "older.trainers": "with_common_config COMMON_CONFIG",
    },
    "agents.trainer_template": {"older.trainers": "build_trainer"},
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
        "algorithms.appo.appo": "APPO APPOConfig",
        "algorithms.cql.cql": "CQL CQLConfig",
        "algorithms.impala.impala": "IMPALA IMPALAConfig IMPALA:Impala IMPALAConfig:ImpalaConfig",
        "algorithms.marwil.marwil": "MARWIL MARWILConfig",
    },
    "algorithms.a2c.a2c": {"algorithms.a2c": "A2C A2CConfig"},
    "algorithms.a3c": {"algorithms.retired": "A3C A3CConfig"},
    "algorithms.algorithm": {"algorithm.algorithm": "Algorithm"},
    "algorithms.algorithm_config": {
        "config.algorithm_config": "AlgorithmConfig",
        "config.section": "NotProvided",
    },
    "algorithms.alpha_star": {"algorithms.retired": "AlphaStar AlphaStarConfig"},
    "algorithms.apex_ddpg": {"algorithms.retired": "ApexDDPG ApexDDPGConfig"},
    "algorithms.apex_dqn": {"algorithms.retired": "ApexDQN ApexDQNConfig"},
    "algorithms.appo.appo": {
        "algorithms.appo": "APPO APPOConfig",
        "algorithms.ppo.torch.ppo_torch_learner": (
            "LEARNER_RESULTS_CURR_KL_COEFF_KEY LEARNER_RESULTS_KL_KEY"
        ),
    },
    "algorithms.appo.appo_learner": {
        "algorithms.appo.torch.appo_torch_learner": "APPOTorchLearner:APPOLearner"
    },
    "algorithms.appo.torch.appo_torch_learner": {
        "algorithms.appo.torch.appo_torch_learner": "APPOTorchLearner"
    },
    "algorithms.bandit": {
        "algorithms.retired": "BanditLinTS BanditLinTSConfig BanditLinUCB BanditLinUCBConfig"
    },
    "algorithms.bc.bc_catalog": {"modules.torch.policy_only": "BCCatalog"},
    "algorithms.bc.torch.default_bc_torch_rl_module": {
        "modules.torch.policy_only": "DefaultBCTorchRLModule"
    },
    "algorithms.callbacks": {"callbacks.callbacks": "RLlibCallback:DefaultCallbacks RLlibCallback"},
    "algorithms.crr": {"algorithms.retired": "CRR CRRConfig"},
    "algorithms.ddpg": {"algorithms.td3": "DDPG DDPGConfig"},
    "algorithms.ddpg.ddpg": {"algorithms.td3": "DDPG DDPGConfig"},
    "algorithms.ddppo": {"algorithms.retired": "DDPPO DDPPOConfig"},
    "algorithms.dqn.default_dqn_rl_module": {
        "algorithms.dqn.torch.dqn_torch_module": (
            "DefaultDQNTorchRLModule:DefaultDQNRLModule QF_LOGITS QF_NEXT_PREDS QF_PREDS "
            "QF_TARGET_NEXT_PREDS QF_TARGET_NEXT_PROBS"
        )
    },
    "algorithms.dqn.dqn_catalog": {"modules.torch.catalog": "Catalog:DQNCatalog"},
    "algorithms.dqn.dqn_learner": {"algorithms.dqn.torch.dqn_torch_learner": "*"},
    "algorithms.dqn.dqn_tf_policy": {"learners.torch.optimizers": "clip_gradients"},
    "algorithms.dqn.torch.default_dqn_torch_rl_module": {
        "algorithms.dqn.torch.dqn_torch_module": "DefaultDQNTorchRLModule"
    },
    "algorithms.dreamer": {"algorithms.retired": "Dreamer DreamerConfig"},
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
    "algorithms.dt": {"algorithms.retired": "DT DTConfig"},
    "algorithms.impala.impala": {
        "algorithms.impala": "IMPALA IMPALAConfig Impala ImpalaConfig",
        "algorithms.ppo.torch.ppo_torch_learner": "LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY",
    },
    "algorithms.impala.impala_learner": {
        "algorithms.impala.torch.impala_torch_learner": "IMPALATorchLearner:IMPALALearner"
    },
    "algorithms.impala.torch.impala_torch_learner": {
        "algorithms.impala.torch.impala_torch_learner": "IMPALATorchLearner"
    },
    "algorithms.iql.default_iql_rl_module": {
        "algorithms.iql.torch.iql_torch_learner": "DefaultIQLTorchRLModule:DefaultIQLRLModule"
    },
    "algorithms.iql.iql_learner": {
        "algorithms.iql.torch.iql_torch_learner": "IQLTorchLearner:IQLLearner"
    },
    "algorithms.iql.torch.default_iql_torch_rl_module": {
        "algorithms.iql.torch.iql_torch_learner": "DefaultIQLTorchRLModule"
    },
    "algorithms.leela_chess_zero": {"algorithms.retired": "LeelaChessZero LeelaChessZeroConfig"},
    "algorithms.maddpg": {"algorithms.retired": "MADDPG MADDPGConfig"},
    "algorithms.maml": {"algorithms.retired": "MAML MAMLConfig"},
    "algorithms.marwil.marwil_learner": {
        "algorithms.ppo.torch.ppo_torch_learner": "LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY",
        "algorithms.marwil.torch.marwil_torch_learner": "MARWILTorchLearner:MARWILLearner",
    },
    "algorithms.mbmpo": {"algorithms.retired": "MBMPO MBMPOConfig"},
    "algorithms.pg": {"algorithms.retired": "PG PGConfig"},
    "algorithms.ppo.default_ppo_rl_module": {"modules.torch.actor_critic": "DefaultPPORLModule"},
    "algorithms.ppo.ppo": {
        "algorithms.ppo.torch.ppo_torch_learner": (
            "LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY LEARNER_RESULTS_CURR_KL_COEFF_KEY "
            "LEARNER_RESULTS_KL_KEY LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY "
            "LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY"
        )
    },
    "algorithms.ppo.ppo_catalog": {"modules.torch.catalog": "PPOCatalog"},
    "algorithms.ppo.ppo_learner": {
        "algorithms.ppo.torch.ppo_torch_learner": "PPOTorchLearner:PPOLearner"
    },
    "algorithms.ppo.torch.default_ppo_torch_rl_module": {
        "modules.torch.actor_critic": "DefaultPPOTorchRLModule"
    },
    "algorithms.r2d2": {"algorithms.retired": "R2D2 R2D2Config"},
    "algorithms.random_agent": {"algorithms.retired": "RandomAgent RandomAgentConfig"},
    "algorithms.registry": {
        "older.trainers": "get_agent_class:get_algorithm_class get_agent_class:get_trainer_class"
    },
    "algorithms.sac.default_sac_rl_module": {
        "algorithms.sac.torch.sac_torch_module": "DefaultSACTorchRLModule:DefaultSACRLModule"
    },
    "algorithms.sac.sac_catalog": {"modules.torch.catalog": "Catalog:SACCatalog"},
    "algorithms.sac.sac_learner": {
        "algorithms.dqn.torch.dqn_torch_learner": (
            "QF_LOSS_KEY QF_MAX_KEY QF_MEAN_KEY QF_MIN_KEY TD_ERROR_MEAN_KEY"
        ),
        "algorithms.dqn.torch.dqn_torch_module": "QF_PREDS",
        "algorithms.sac.torch.sac_torch_learner": "SACTorchLearner:SACLearner",
    },
    "algorithms.sac.torch.default_sac_torch_rl_module": {
        "algorithms.sac.torch.sac_torch_module": "DefaultSACTorchRLModule"
    },
    "algorithms.simple_q": {"algorithms.retired": "SimpleQ SimpleQConfig"},
    "algorithms.slateq": {"algorithms.retired": "SlateQ SlateQConfig"},
    "algorithms.tqc": {"modules.torch.catalog": "Catalog:TQCCatalog"},
    "algorithms.tqc.default_tqc_rl_module": {
        "algorithms.tqc.torch.tqc_torch_learner": "DefaultTQCTorchRLModule:DefaultTQCRLModule"
    },
    "algorithms.tqc.torch": {
        "algorithms.tqc.torch.tqc_torch_learner": "DefaultTQCTorchRLModule TQCTorchLearner"
    },
    "algorithms.tqc.torch.default_tqc_torch_rl_module": {
        "algorithms.tqc.torch.tqc_torch_learner": "DefaultTQCTorchRLModule"
    },
    "algorithms.tqc.tqc_catalog": {"modules.torch.catalog": "Catalog:TQCCatalog"},
    "algorithms.tqc.tqc_learner": {
        "algorithms.dqn.torch.dqn_torch_learner": (
            "QF_LOSS_KEY QF_MAX_KEY QF_MEAN_KEY QF_MIN_KEY TD_ERROR_MEAN_KEY"
        ),
        "algorithms.tqc.torch.tqc_torch_learner": "TQCTorchLearner:TQCLearner",
    },
    "callbacks.utils": {"callbacks.callback_list": "make_callback"},
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
            "MultiAgentObservationPreprocessor SingleAgentObservationPreprocessor "
            "SingleAgentObservationPreprocessor:ObservationPreprocessor"
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
    "core.columns": {"columns.names": "Columns"},
    "core.distribution.distribution": {"modules.distribution": "Distribution"},
    "core.distribution.torch.torch_distribution": {
        "modules.torch.distributions.categorical": "TorchCategorical TorchMultiCategorical",
        "modules.torch.distributions.deterministic": "TorchDeterministic",
        "modules.torch.distributions.mixture": "TorchGaussianMixture",
        "modules.torch.distributions.gaussian": "TorchDiagGaussian TorchSquashedGaussian",
        "modules.torch.distributions.base": "TorchDistribution",
        "modules.torch.distributions.multi": "TorchMultiDistribution",
    },
    "core.learner": {
        "learners.torch.torch_learner": "TorchLearner:Learner",
        "learners.group": "LearnerGroup",
    },
    "core.learner.learner": {
        "learners.torch.torch_learner": "TorchLearner:Learner",
        "learners.torch.optimizers": "DEFAULT_OPTIMIZER",
        "algorithms.ppo.torch.ppo_torch_learner": "ENTROPY_KEY POLICY_LOSS_KEY VF_LOSS_KEY",
    },
    "core.learner.learner_group": {"learners.group": "LearnerGroup"},
    "core.learner.torch": {"learners.torch.torch_learner": "TorchLearner"},
    "core.learner.torch.torch_learner": {"learners.torch.torch_learner": "TorchLearner"},
    "core.learner.utils": {"utilities.torch.tensors_torch": "update_target_network"},
    "core.models.base": {
        "modules.torch.models": "ACTOR CRITIC ENCODER_OUT Encoder Model",
        "modules.torch.memory": "tokenize",
    },
    "core.models.catalog": {"modules.torch.catalog": "Catalog"},
    "core.models.configs": {
        "modules.torch.encoders": (
            "ActorCriticEncoderConfig CNNEncoderConfig MLPEncoderConfig MultiStreamEncoderConfig"
        ),
        "modules.torch.heads": "CNNTransposeHeadConfig FreeLogStdMLPHeadConfig MLPHeadConfig",
        "modules.torch.models": "ModelConfig",
        "modules.torch.memory": "RecurrentEncoderConfig",
    },
    "core.models.torch.base": {"modules.torch.models": "TorchModel"},
    "core.models.torch.encoder": {
        "modules.torch.encoders": (
            "TorchActorCriticEncoder TorchCNNEncoder TorchMLPEncoder TorchMultiStreamEncoder "
            "TorchStatefulActorCriticEncoder"
        ),
        "modules.torch.memory": "TorchGRUEncoder TorchLSTMEncoder",
    },
    "core.models.torch.heads": {
        "modules.torch.heads": "TorchCNNTransposeHead TorchFreeLogStdMLPHead TorchMLPHead"
    },
    "core.models.torch.primitives": {
        "modules.torch.primitives": "LayerNorm1D TorchCNN TorchCNNTranspose TorchMLP"
    },
    "core.rl_module": {
        "modules.rl_module": "RLModule RLModuleSpec MultiRLModule MultiRLModuleSpec",
        "modules.default_model_config": "DefaultModelConfig",
        "modules.module_dict": "validate_module_id",
    },
    "core.rl_module.apis": {
        "modules.apis": (
            "InferenceOnlyAPI QNetAPI SelfSupervisedLossAPI TargetNetworkAPI ValueFunctionAPI "
            "TARGET_NETWORK_ACTION_DIST_INPUTS"
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
    "core.rl_module.torch.torch_compile_config": {
        "modules.torch.torch_rl_module": "TorchCompileConfig"
    },
    "core.rl_module.torch.torch_rl_module": {
        "modules.torch.torch_rl_module": "TorchRLModule TorchDDPRLModule"
    },
    "core.testing.torch.bc_learner": {"algorithms.bc.torch.bc_torch_learner": "BCTorchLearner"},
    "env": {
        "envs.env_context": "EnvContext",
        "envs.multi_agent_env": "MultiAgentEnv GroupAgentsWrapper",
        "envs.external.external_env": "ExternalEnv",
        "connectors.defaults": (
            "SINGLE_SPACES:INPUT_ENV_SINGLE_SPACES VECTOR_SPACES:INPUT_ENV_SPACES"
        ),
        "envs.pettingzoo": "ParallelPettingZooEnv PettingZooEnv",
        "envs.external.policy_client": "PolicyClient",
    },
    "env.env_context": {"envs.env_context": "EnvContext"},
    "env.env_errors": {"envs.env_errors": "StepFailedRecreateEnvError"},
    "env.env_runner": {"runners.single_agent_env_runner": "SingleAgentEnvRunner:EnvRunner"},
    "env.env_runner_group": {"runners.group": "EnvRunnerGroup"},
    "env.external": {
        "envs.external.rllink": "RLlink get_rllink_message send_rllink_message",
        "runners.external_env_runner": (
            "ExternalEnvRunner:EnvRunnerServerForExternalInference ExternalEnvRunner"
        ),
    },
    "env.external.env_runner_server_for_external_inference": {
        "runners.external_env_runner": "ExternalEnvRunner:EnvRunnerServerForExternalInference"
    },
    "env.external.rllink": {
        "envs.external.rllink": "RLlink get_rllink_message send_rllink_message"
    },
    "env.external_env": {"envs.external.external_env": "ExternalEnv"},
    "env.multi_agent_env": {"envs.multi_agent_env": "MultiAgentEnv make_multi_agent ENV_STATE"},
    "env.multi_agent_env_runner": {"runners.multi_agent_env_runner": "MultiAgentEnvRunner"},
    "env.multi_agent_episode": {"episodes.multi_agent_episode": "MultiAgentEpisode"},
    "env.policy_client": {"envs.external.policy_client": "PolicyClient"},
    "env.policy_server_input": {"envs.external.policy_server_input": "PolicyServerInput"},
    "env.single_agent_env_runner": {"runners.single_agent_env_runner": "SingleAgentEnvRunner"},
    "env.single_agent_episode": {"episodes.single_agent_episode": "SingleAgentEpisode"},
    "env.tcp_client_inference_env_runner": {
        "runners.external_env_runner": "ExternalEnvRunner:TcpClientInferenceEnvRunner"
    },
    "env.utils": {
        "envs.env_context": "EnvContext",
        "envs.env_errors": "EnvError",
        "annotations": "PublicAPI",
    },
    "env.utils.infinite_lookback_buffer": {"episodes.lookback": "InfiniteLookbackBuffer"},
    "env.wrappers.group_agents_wrapper": {
        "envs.multi_agent_env": "GROUP_INFO GROUP_REWARDS GroupAgentsWrapper"
    },
    "env.wrappers.pettingzoo_env": {"envs.pettingzoo": "ParallelPettingZooEnv PettingZooEnv"},
    "evaluation": {
        "older.sample_batch": "SampleBatch MultiAgentBatch",
        "utilities.postprocessing": "compute_advantages",
    },
    "evaluation.postprocessing": {
        "utilities.postprocessing": "Postprocessing compute_advantages discount_cumsum"
    },
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
    "examples.envs.classes.multi_agent": {
        "envs.examples.multi_agent": (
            "MultiAgentCartPole MultiAgentMountainCar MultiAgentPendulum "
            "MultiAgentStatelessCartPole MultiAgentCartPoleWithDictObservationSpace "
            "MultiAgentNestedSpaceRepeatAfterMeEnv MultiAgentCartPoleCrashing"
        ),
        "envs.examples.games": "GuessTheNumberGame RockPaperScissors TicTacToe",
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
    "models": {
        "older.torch.model_catalog": "ModelCatalog",
        "older.model_config": "MODEL_DEFAULTS",
        "older.torch.model_v2": "ModelV2",
        "older.torch.action_dists": "ActionDistribution",
        "older.preprocessors": "Preprocessor",
    },
    "models.action_dist": {"older.torch.action_dists": "ActionDistribution"},
    "models.catalog": {
        "older.torch.model_catalog": "ModelCatalog",
        "older.model_config": "MODEL_DEFAULTS",
    },
    "models.modelv2": {"older.torch.model_v2": "ModelV2 unpacked:restore_original_dimensions"},
    "models.preprocessors": {
        "older.preprocessors": (
            "Preprocessor NoPreprocessor OneHotPreprocessor DictFlatteningPreprocessor "
            "TupleFlatteningPreprocessor preprocessor_class:get_preprocessor"
        )
    },
    "models.torch.attention_net": {"older.torch.networks": "GTrXLNet AttentionWrapper"},
    "models.torch.fcnet": {"older.torch.networks": "FullyConnectedNetwork"},
    "models.torch.misc": {
        "older.torch.networks": ("SlimFC SlimConv2d AppendBiasLayer normc_initializer same_padding")
    },
    "models.torch.modules": {"modules.torch.attention": "GRUGate"},
    "models.torch.modules.gru_gate": {"modules.torch.attention": "GRUGate"},
    "models.torch.recurrent_net": {
        "older.torch.model_v2": "RecurrentNetwork",
        "older.torch.networks": "LSTMWrapper",
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
    "models.torch.torch_modelv2": {"older.torch.model_v2": "TorchModelV2"},
    "models.torch.visionnet": {"older.torch.networks": "VisionNetwork"},
    "models.utils": {
        "modules.torch.primitives": "get_activation:get_activation_fn",
        "modules.torch.encoders": "default_filters:get_filter_config",
    },
    "offline.offline_data": {"offline.offline_data": "OfflineData"},
    "offline.offline_prelearner": {"offline.prelearner": "OfflinePreLearner"},
    "policy": {"older.policy": "Policy", "older.policy_spec": "PolicySpec"},
    "policy.policy": {"older.policy": "Policy", "older.policy_spec": "PolicySpec"},
    "policy.rnn_sequencing": {"older.torch.model_v2": "add_time_dimension"},
    "policy.sample_batch": {
        "older.sample_batch": (
            "SampleBatch MultiAgentBatch concat_samples convert_ma_batch_to_sample_batch"
        ),
        "metrics.names": "DEFAULT_POLICY_ID",
    },
    "policy.view_requirement": {"older.view_requirement": "ViewRequirement"},
    "utils": {
        "utilities.schedules": (
            "ConstantSchedule ExponentialSchedule LinearSchedule PiecewiseSchedule "
            "PolynomialSchedule"
        ),
        "annotations": "DeveloperAPI PublicAPI override",
        "utilities.arrays": (
            "LARGE_INTEGER MAX_LOG_NN_OUTPUT MIN_LOG_NN_OUTPUT SMALL_NUMBER fc one_hot relu "
            "sigmoid softmax"
        ),
        "utilities.checks": "check check_compute_single_action",
        "older.trainers": "merged:deep_update merged:merge_dicts",
        "utilities.torch.frameworks_torch": (
            "try_import_jax try_import_tf try_import_tfp try_import_torch"
        ),
    },
    "utils.annotations": {
        "annotations": (
            "override PublicAPI DeveloperAPI OverrideToImplementCustomLogic "
            "OverrideToImplementCustomLogic_CallToSuperRecommended"
        )
    },
    "utils.checkpoints": {"checkpointable": "Checkpointable CHECKPOINT_VERSION"},
    "utils.error": {"envs.env_errors": "EnvError"},
    "utils.filter": {"connectors.to_module.mean_std_filter": "MeanStdFilter"},
    "utils.framework": {
        "utilities.torch.tensors_torch": "convert_to_torch_tensor:convert_to_tensor get_device",
        "modules.torch.primitives": "get_activation:get_activation_fn",
        "utilities.torch.frameworks_torch": (
            "try_import_jax try_import_tf try_import_tfp try_import_torch"
        ),
    },
    "utils.from_config": {"config.section": "NotProvided"},
    "utils.metrics": {"metrics.names": "*"},
    "utils.metrics.learner_info": {"metrics.names": "LEARNER_STATS_KEY"},
    "utils.metrics.metrics_logger": {
        "metrics.metrics_logger": "MetricsLogger DEFAULT_STATS_CLS_LOOKUP"
    },
    "utils.metrics.stats": {
        "metrics.other_stats": "EmaStats ItemSeriesStats ItemStats PercentilesStats",
        "metrics.series_stats": (
            "LifetimeSumStats MaxStats MeanStats MinStats SeriesStats SumStats"
        ),
        "metrics.stats": "StatsBase",
    },
    "utils.metrics.stats.base": {"metrics.stats": "StatsBase"},
    "utils.metrics.stats.ema": {"metrics.other_stats": "EmaStats"},
    "utils.metrics.stats.item": {"metrics.other_stats": "ItemStats"},
    "utils.metrics.stats.item_series": {"metrics.other_stats": "ItemSeriesStats"},
    "utils.metrics.stats.lifetime_sum": {"metrics.series_stats": "LifetimeSumStats"},
    "utils.metrics.stats.max": {"metrics.series_stats": "MaxStats"},
    "utils.metrics.stats.mean": {"metrics.series_stats": "MeanStats"},
    "utils.metrics.stats.min": {"metrics.series_stats": "MinStats"},
    "utils.metrics.stats.percentiles": {"metrics.other_stats": "PercentilesStats"},
    "utils.metrics.stats.series": {"metrics.series_stats": "SeriesStats"},
    "utils.metrics.stats.sum": {"metrics.series_stats": "SumStats"},
    "utils.numpy": {
        "utilities.arrays": (
            "LARGE_INTEGER MAX_LOG_NN_OUTPUT MIN_LOG_NN_OUTPUT SMALL_NUMBER convert_to_numpy "
            "fc flatten_inputs_to_1d_tensor huber_loss l2_loss one_hot one_hot_multidiscrete "
            "relu sigmoid softmax"
        )
    },
    "utils.postprocessing.episodes": {
        "utilities.postprocessing": "add_one_ts_to_episodes_and_truncate"
    },
    "utils.replay_buffers": {
        "buffers.episode_buffers": (
            "EpisodeReplayBuffer MultiAgentEpisodeReplayBuffer "
            "MultiAgentPrioritizedEpisodeReplayBuffer PrioritizedEpisodeReplayBuffer"
        )
    },
    "utils.replay_buffers.episode_replay_buffer": {
        "buffers.episode_buffers": "EpisodeReplayBuffer"
    },
    "utils.replay_buffers.multi_agent_episode_buffer": {
        "buffers.episode_buffers": "MultiAgentEpisodeReplayBuffer"
    },
    "utils.replay_buffers.multi_agent_prioritized_episode_buffer": {
        "buffers.episode_buffers": "MultiAgentPrioritizedEpisodeReplayBuffer"
    },
    "utils.replay_buffers.prioritized_episode_buffer": {
        "buffers.episode_buffers": "PrioritizedEpisodeReplayBuffer"
    },
    "utils.schedules": {
        "utilities.schedules": (
            "ConstantSchedule ExponentialSchedule LinearSchedule PiecewiseSchedule "
            "PolynomialSchedule Schedule"
        )
    },
    "utils.schedules.constant_schedule": {"utilities.schedules": "ConstantSchedule"},
    "utils.schedules.exponential_schedule": {"utilities.schedules": "ExponentialSchedule"},
    "utils.schedules.linear_schedule": {"utilities.schedules": "LinearSchedule"},
    "utils.schedules.piecewise_schedule": {"utilities.schedules": "PiecewiseSchedule"},
    "utils.schedules.polynomial_schedule": {"utilities.schedules": "PolynomialSchedule"},
    "utils.schedules.schedule": {"utilities.schedules": "Schedule"},
    "utils.serialization": {
        "envs.space_serialization": (
            "gym_space_from_dict gym_space_to_dict gym_space_from_dict:space_from_dict "
            "gym_space_to_dict:space_to_dict"
        )
    },
    "utils.spaces.simplex": {"utilities.spaces": "Simplex"},
    "utils.spaces.space_utils": {
        "utilities.spaces": (
            "batch clip_action flatten_space flatten_to_single_ndarray "
            "get_base_struct_from_space get_dummy_batch_for_space get_original_space "
            "is_composite_space normalize_action unbatch unsquash_action"
        )
    },
    "utils.test_utils": {
        "utilities.checks": (
            "add_rllib_example_script_args check check_compute_single_action "
            "run_rllib_example_script_experiment"
        )
    },
    "utils.torch_utils": {
        "utilities.torch.tensors_torch": (
            "FLOAT_MAX FLOAT_MIN compute_global_norm convert_to_torch_tensor "
            "copy_torch_tensors explained_variance flatten_inputs_to_1d_tensor global_norm "
            "huber_loss inverse_symlog l2_loss one_hot reduce_mean_ignore_inf sequence_mask "
            "set_torch_seed softmax_cross_entropy_with_logits symlog update_target_network"
        ),
        "learners.torch.optimizers": "clip_gradients",
    },
    "utils.typing": {
        "utilities.type_names": (
            "AgentID AgentToModuleMappingFn AlgorithmConfigDict ConvFilterSpec DeviceType "
            "EnvActionType EnvConfigDict EnvCreator EnvID EnvInfoDict EnvObsType EnvType "
            "EpisodeID EpisodeType FileType FromConfigSpec GradInfoDict "
            "LearningRateOrSchedule LocalOptimizer ModelConfigDict ModelGradients "
            "ModelWeights ModuleID MultiAgentDict MultiEnvDict NamedParamDict NetworkType "
            "Optimizer Param ParamDict ParamList ParamRef PartialAlgorithmConfigDict PolicyID "
            "PolicyState RLModuleSpecType ResultDict SampleBatchType ShouldModuleBeUpdatedFn "
            "SpaceStruct StateDict TensorStructType TensorType ViewRequirementsDict"
        )
    },
}
"""RLlib's path -> module under `syncline.rl` -> its names; `A:B` is `A` under the name `B`."""
