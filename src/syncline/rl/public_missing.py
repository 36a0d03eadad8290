"""Names of RLlib 2.60 without a counterpart in syncline; data of `public_retired`."""

from __future__ import annotations

MISSING: dict[str, str] = {
    "": "BaseEnv RolloutWorker TFPolicy TorchPolicy VectorEnv",
    "algorithms.algorithm": "TrainIterCtx",
    "algorithms.algorithm_config": "DifferentiableAlgorithmConfig TorchCompileWhatToCompile",
    "algorithms.appo": "APPOTF1Policy APPOTF2Policy APPOTorchPolicy",
    "algorithms.appo.appo": (
        "LEARNER_RESULTS_MEAN_IS_KEY LEARNER_RESULTS_VAR_IS_KEY OLD_ACTION_DIST_KEY"
    ),
    "algorithms.appo.appo_learner": "AppoLearner",
    "algorithms.appo.appo_tf_policy": "APPOTF1Policy APPOTF2Policy get_appo_tf_policy",
    "algorithms.appo.appo_torch_policy": "APPOTorchPolicy",
    "algorithms.appo.default_appo_rl_module": "DefaultAPPORLModule",
    "algorithms.appo.torch.default_appo_torch_rl_module": "DefaultAPPOTorchRLModule",
    "algorithms.appo.utils": "CircularBuffer POLICY_SCOPE TARGET_POLICY_SCOPE make_appo_models",
    "algorithms.callbacks": "make_multi_callbacks",
    "algorithms.cql": "CQLTorchPolicy",
    "algorithms.cql.cql_tf_policy": (
        "ActorCriticOptimizerMixin CQLTFPolicy MEAN_MAX MEAN_MIN apply_gradients_fn "
        "compute_gradients_fn cql_loss cql_stats policy_actions_repeat q_values_repeat "
        "setup_early_mixins"
    ),
    "algorithms.cql.cql_torch_policy": (
        "CQLTorchPolicy MEAN_MAX MEAN_MIN apply_gradients_fn compute_gradients_fn cql_loss "
        "cql_optimizer_fn cql_setup_late_mixins cql_stats policy_actions_repeat "
        "q_values_repeat"
    ),
    "algorithms.cql.torch.default_cql_torch_rl_module": "DefaultCQLTorchRLModule",
    "algorithms.dqn": "DQNTFPolicy DQNTorchPolicy",
    "algorithms.dqn.default_dqn_rl_module": "ATOMS QF_PROBS",
    "algorithms.dqn.distributional_q_tf_model": "DistributionalQTFModel",
    "algorithms.dqn.dqn": "calculate_rr_weights",
    "algorithms.dqn.dqn_learner": "ATOMS DQNLearner QF_PROBS",
    "algorithms.dqn.dqn_tf_policy": (
        "ComputeTDErrorMixin DQNTFPolicy PRIO_WEIGHTS QLoss Q_SCOPE Q_TARGET_SCOPE "
        "adam_optimizer build_q_losses build_q_model build_q_stats compute_q_values "
        "get_distribution_inputs_and_class postprocess_nstep_and_prio setup_late_mixins "
        "setup_mid_mixins"
    ),
    "algorithms.dqn.dqn_torch_model": "DQNTorchModel",
    "algorithms.dqn.dqn_torch_policy": (
        "ComputeTDErrorMixin DQNTorchPolicy QLoss adam_optimizer before_loss_init "
        "build_q_losses build_q_model_and_distribution build_q_stats compute_q_values "
        "extra_action_out_fn get_distribution_inputs_and_class grad_process_and_td_error_fn "
        "setup_early_mixins"
    ),
    "algorithms.dreamerv3.dreamerv3_catalog": "DreamerV3Catalog",
    "algorithms.dreamerv3.dreamerv3_rl_module": "ACTIONS_ONE_HOT",
    "algorithms.dreamerv3.torch.models.actor_network": "ActorNetwork",
    "algorithms.dreamerv3.torch.models.components": (
        "dreamerv3_normal_initializer force_list try_import_torch"
    ),
    "algorithms.dreamerv3.torch.models.components.cnn_atari": "CNNAtari",
    "algorithms.dreamerv3.torch.models.components.continue_predictor": "ContinuePredictor",
    "algorithms.dreamerv3.torch.models.components.conv_transpose_atari": "ConvTransposeAtari",
    "algorithms.dreamerv3.torch.models.components.dynamics_predictor": "DynamicsPredictor",
    "algorithms.dreamerv3.torch.models.components.mlp": "MLP",
    "algorithms.dreamerv3.torch.models.components.representation_layer": "RepresentationLayer",
    "algorithms.dreamerv3.torch.models.components.reward_predictor": "RewardPredictor",
    "algorithms.dreamerv3.torch.models.components.reward_predictor_layer": ("RewardPredictorLayer"),
    "algorithms.dreamerv3.torch.models.components.sequence_model": "DreamerV3GRU SequenceModel",
    "algorithms.dreamerv3.torch.models.components.vector_decoder": "VectorDecoder",
    "algorithms.dreamerv3.torch.models.critic_network": "CriticNetwork",
    "algorithms.dreamerv3.torch.models.dreamer_model": "DreamerModel",
    "algorithms.dreamerv3.torch.models.world_model": "WorldModel",
    "algorithms.dreamerv3.utils": (
        "do_symlog_obs get_cnn_multiplier get_dense_hidden_units get_gru_units "
        "get_num_curiosity_nets get_num_dense_layers get_num_z_categoricals get_num_z_classes"
    ),
    "algorithms.dreamerv3.utils.add_is_firsts_to_batch": "AddIsFirstsToBatch",
    "algorithms.dreamerv3.utils.debugging": (
        "CartPoleDebug cartpole_env create_cartpole_dream_image create_frozenlake_dream_image "
        "frozenlake_env"
    ),
    "algorithms.dreamerv3.utils.summaries": (
        "reconstruct_obs_from_h_and_z report_dreamed_eval_trajectory_vs_samples "
        "report_dreamed_trajectory report_predicted_vs_sampled_obs "
        "report_sampling_and_replay_buffer"
    ),
    "algorithms.impala": "ImpalaTF1Policy ImpalaTF2Policy ImpalaTorchPolicy",
    "algorithms.impala.impala": "make_learner_thread",
    "algorithms.impala.impala_learner": (
        "BATCHES_PER_AGGREGATION GPU_LOADER_LOAD_TO_GPU_TIMER GPU_LOADER_QUEUE_WAIT_TIMER "
        "ImpalaLearner LEARNER_THREAD_ENV_STEPS_DROPPED LEARNER_THREAD_IN_QUEUE_WAIT_TIMER "
        "LEARNER_THREAD_UPDATE_TIMER QUEUE_SIZE_GPU_LOADER_QUEUE "
        "QUEUE_SIZE_LEARNER_THREAD_QUEUE QUEUE_SIZE_RESULTS_QUEUE RAY_GET_EPISODES_TIMER"
    ),
    "algorithms.impala.impala_tf_policy": (
        "ImpalaTF1Policy ImpalaTF2Policy VTraceClipGradients VTraceLoss VTraceOptimizer "
        "get_impala_tf_policy"
    ),
    "algorithms.impala.impala_torch_policy": (
        "ImpalaTorchPolicy VTraceLoss VTraceOptimizer make_time_major"
    ),
    "algorithms.impala.torch.impala_torch_learner": "ImpalaTorchLearner",
    "algorithms.impala.torch.vtrace_torch_v2": "make_time_major vtrace_torch",
    "algorithms.impala.vtrace_tf": (
        "VTraceFromLogitsReturns VTraceReturns from_importance_weights from_logits "
        "get_log_rhos log_probs_from_logits_and_actions multi_from_logits "
        "multi_log_probs_from_logits_and_actions"
    ),
    "algorithms.impala.vtrace_torch": (
        "from_importance_weights from_logits get_log_rhos log_probs_from_logits_and_actions "
        "multi_from_logits multi_log_probs_from_logits_and_actions"
    ),
    "algorithms.iql.iql_learner": "QF_TARGET_PREDS VF_LOSS VF_PREDS_NEXT",
    "algorithms.marwil": "MARWILTF1Policy MARWILTF2Policy MARWILTorchPolicy",
    "algorithms.marwil.marwil_learner": "LEARNER_RESULTS_MOVING_AVG_SQD_ADV_NORM_KEY",
    "algorithms.marwil.marwil_tf_policy": (
        "MARWILLoss MARWILTF1Policy MARWILTF2Policy PostprocessAdvantages get_marwil_tf_policy"
    ),
    "algorithms.marwil.marwil_torch_policy": "MARWILTorchPolicy",
    "algorithms.ppo": "PPOTF1Policy PPOTF2Policy PPOTorchPolicy",
    "algorithms.ppo.ppo_tf_policy": ("PPOTF1Policy PPOTF2Policy get_ppo_tf_policy validate_config"),
    "algorithms.ppo.ppo_torch_policy": "PPOTorchPolicy",
    "algorithms.registry": (
        "ALGORITHMS_CLASS_TO_NAME POLICIES get_policy_class get_policy_class_name"
    ),
    "algorithms.sac": "SACTFPolicy SACTorchPolicy",
    "algorithms.sac.sac_learner": (
        "ACTION_DIST_INPUTS_NEXT ACTION_LOG_PROBS ACTION_LOG_PROBS_NEXT ACTION_PROBS "
        "ACTION_PROBS_NEXT CRITIC_TARGET LOGPS_KEY QF_TARGET_NEXT QF_TWIN_LOSS_KEY "
        "QF_TWIN_PREDS"
    ),
    "algorithms.sac.sac_tf_model": "SACTFModel",
    "algorithms.sac.sac_tf_policy": (
        "ActorCriticOptimizerMixin ComputeTDErrorMixin SACTFPolicy apply_gradients "
        "build_sac_model compute_and_clip_gradients get_distribution_inputs_and_class "
        "postprocess_trajectory sac_actor_critic_loss setup_early_mixins setup_late_mixins "
        "setup_mid_mixins stats validate_spaces"
    ),
    "algorithms.sac.sac_torch_model": "SACTorchModel",
    "algorithms.sac.sac_torch_policy": (
        "ComputeTDErrorMixin SACTorchPolicy action_distribution_fn actor_critic_loss "
        "build_sac_model_and_action_dist optimizer_fn setup_late_mixins stats"
    ),
    "algorithms.tqc.torch.tqc_torch_learner": "quantile_huber_loss_per_sample",
    "algorithms.tqc.tqc_learner": "QUANTILES_KEY",
    "algorithms.utils": "AggregatorActor",
    "connectors.action.clip": "ClipActionsConnector",
    "connectors.action.immutable": "ImmutableActionsConnector",
    "connectors.action.lambdas": "ConvertToNumpyConnector register_lambda_action_connector",
    "connectors.action.normalize": "NormalizeActionsConnector",
    "connectors.action.pipeline": "ActionConnectorPipeline",
    "connectors.agent.clip_reward": "ClipRewardAgentConnector",
    "connectors.agent.env_sampling": "EnvSamplingAgentConnector",
    "connectors.agent.lambdas": (
        "FlattenDataAgentConnector flatten_data register_lambda_agent_connector"
    ),
    "connectors.agent.mean_std_filter": (
        "ConcurrentMeanStdObservationFilterAgentConnector MeanStdObservationFilterAgentConnector"
    ),
    "connectors.agent.obs_preproc": "ObsPreprocessorConnector",
    "connectors.agent.pipeline": "AgentConnectorPipeline",
    "connectors.agent.state_buffer": "StateBufferConnector",
    "connectors.agent.synced_filter": "SyncedFilterAgentConnector",
    "connectors.agent.view_requirement": "ViewRequirementAgentConnector",
    "connectors.connector": (
        "ActionConnector AgentConnector Connector ConnectorContext ConnectorPipeline"
    ),
    "connectors.registry": "ALL_CONNECTORS get_connector register_connector",
    "connectors.util": (
        "create_connectors_for_policy get_action_connectors_from_config "
        "get_agent_connectors_from_config get_synced_filter_connector "
        "maybe_get_filters_for_syncing restore_connectors_for_policy"
    ),
    "core.learner.differentiable_learner": "DifferentiableLearner",
    "core.learner.differentiable_learner_config": "DifferentiableLearnerConfig",
    "core.learner.learner": "LR_KEY",
    "core.learner.learner_group": "RLlibBackendExecutor",
    "core.learner.torch.torch_differentiable_learner": "TorchDifferentiableLearner",
    "core.learner.torch.torch_meta_learner": "TorchMetaLearner",
    "core.learner.training_data": "TrainingData",
    "core.learner.utils": "make_target_network",
    "core.models.base": "ActorCriticEncoder StatefulActorCriticEncoder",
    "core.models.specs.specs_base": "Spec TensorSpec TypeSpec",
    "core.models.specs.specs_dict": "SpecDict",
    "core.models.torch.utils": "Stride2D",
    "core.rl_module.multi_rl_module": "MultiRLModuleConfig",
    "core.rl_module.rl_module": "RLModuleConfig",
    "core.rl_module.torch.torch_rl_module": "compile_wrapper",
    "core.testing.bc_algorithm": "BCAlgorithmTest BCConfigTest",
    "core.testing.testing_learner": "BaseTestingAlgorithmConfig BaseTestingLearner",
    "core.testing.torch.bc_module": (
        "BCTorchMultiAgentModuleWithSharedEncoder BCTorchRLModuleWithSharedGlobalEncoder "
        "DiscreteBCTorchModule"
    ),
    "env": "BaseEnv DMCEnv DMEnv ExternalMultiAgentEnv RemoteBaseEnv VectorEnv",
    "env.base_env": "ASYNC_RESET_RETURN BaseEnv convert_to_base_env with_dummy_agent_id",
    "env.env_runner": "ENV_RESET_FAILURE ENV_STEP_FAILURE NUM_ENV_STEP_FAILURES_LIFETIME",
    "env.env_runner_state_server": "EnvRunnerStateServer",
    "env.external_env": "ExternalEnvWrapper",
    "env.external_multi_agent_env": "ExternalMultiAgentEnv",
    "env.multi_agent_env": "MultiAgentEnvWrapper",
    "env.remote_base_env": "RemoteBaseEnv",
    "env.utils": "ERR_MSG_INVALID_ENV_DESCRIPTOR try_import_open_spiel try_import_pyspiel",
    "env.vector.registration": "make_vec",
    "env.vector.sync_vector_multi_agent_env": "SyncVectorMultiAgentEnv",
    "env.vector.vector_multi_agent_env": "ArrayType VectorMultiAgentEnv",
    "env.vector_env": "VectorEnv VectorEnvWrapper",
    "env.wrappers.atari_wrappers": (
        "ClipRewardEnv EpisodicLifeEnv FireResetEnv FrameStack FrameStackTrajectoryView "
        "GrayScaleAndResize MaxAndSkipEnv MonitorEnv NoopResetEnv NormalizedImageEnv "
        "WarpFrame get_wrapper_by_cls is_atari wrap_atari_for_new_api_stack wrap_deepmind"
    ),
    "env.wrappers.dm_control_wrapper": "ActionClip DMCEnv",
    "env.wrappers.dm_env_wrapper": "DMEnv",
    "env.wrappers.multi_agent_env_compatibility": "MultiAgentEnvCompatibility",
    "env.wrappers.open_spiel": "OpenSpielEnv",
    "evaluation": (
        "MultiAgentSampleBatchBuilder RolloutWorker SampleBatchBuilder SyncSampler collect_metrics"
    ),
    "evaluation.collectors.agent_collector": "AgentCollector",
    "evaluation.collectors.sample_collector": "SampleCollector",
    "evaluation.collectors.simple_list_collector": "SimpleListCollector",
    "evaluation.env_runner_v2": (
        "DEFAULT_LARGE_BATCH_THRESHOLD EnvRunnerV2 MIN_LARGE_BATCH_THRESHOLD MS_TO_SEC"
    ),
    "evaluation.episode_v2": "EpisodeV2",
    "evaluation.metrics": (
        "RolloutMetrics collect_episodes collect_metrics get_learner_stats summarize_episodes"
    ),
    "evaluation.observation_function": "ObservationFunction",
    "evaluation.postprocessing": (
        "adjust_nstep compute_bootstrap_value compute_gae_for_sample_batch"
    ),
    "evaluation.rollout_worker": "RolloutWorker get_global_worker",
    "evaluation.sample_batch_builder": "MultiAgentSampleBatchBuilder SampleBatchBuilder",
    "evaluation.sampler": "SamplerInput StateBatch SyncSampler",
    "evaluation.worker_set": "WorkerSet",
    "execution": (
        "LearnerThread MinibatchBuffer MultiGPULearnerThread SimpleReplayBuffer "
        "multi_gpu_train_one_step standardize_fields synchronous_parallel_sample "
        "train_one_step"
    ),
    "execution.buffers.mixin_replay_buffer": "MixInMultiAgentReplayBuffer",
    "execution.learner_thread": "LearnerThread",
    "execution.minibatch_buffer": "MinibatchBuffer",
    "execution.multi_gpu_learner_thread": "MultiGPULearnerThread",
    "execution.replay_ops": "SimpleReplayBuffer",
    "execution.rollout_ops": "standardize_fields synchronous_parallel_sample",
    "execution.segment_tree": "MinSegmentTree SegmentTree SumSegmentTree",
    "execution.train_ops": "multi_gpu_train_one_step train_one_step",
    "models.modelv2": "flatten",
    "models.preprocessors": (
        "ATARI_OBS_SHAPE ATARI_RAM_OBS_SHAPE AtariRamPreprocessor GenericPixelPreprocessor "
        "MultiBinaryPreprocessor OBS_VALIDATION_INTERVAL RepeatedValuesPreprocessor"
    ),
    "models.repeated_values": "RepeatedValues",
    "models.tf": "FullyConnectedNetwork RecurrentNetwork TFModelV2 VisionNetwork",
    "models.tf.attention_net": "AttentionWrapper GTrXLNet PositionwiseFeedforward TrXLNet",
    "models.tf.complex_input_net": "ComplexInputNetwork",
    "models.tf.fcnet": "FullyConnectedNetwork",
    "models.tf.layers": (
        "GRUGate MultiHeadAttention NoisyLayer PositionalEmbedding RelativeMultiHeadAttention "
        "SkipConnection"
    ),
    "models.tf.layers.gru_gate": "GRUGate",
    "models.tf.layers.multi_head_attention": "MultiHeadAttention",
    "models.tf.layers.noisy_layer": "NoisyLayer",
    "models.tf.layers.relative_multi_head_attention": (
        "PositionalEmbedding RelativeMultiHeadAttention"
    ),
    "models.tf.layers.skip_connection": "SkipConnection",
    "models.tf.misc": "conv2d flatten linear normc_initializer",
    "models.tf.recurrent_net": "LSTMWrapper RecurrentNetwork",
    "models.tf.tf_action_dist": (
        "Beta Categorical Deterministic DiagGaussian Dirichlet GumbelSoftmax "
        "MultiActionDistribution MultiCategorical SlateMultiCategorical SquashedGaussian "
        "TFActionDistribution get_categorical_class_with_temperature"
    ),
    "models.tf.tf_modelv2": "TFModelV2",
    "models.tf.visionnet": "VisionNetwork",
    "models.torch.complex_input_net": "ComplexInputNetwork",
    "models.torch.mingpt": (
        "Block CausalSelfAttention GPT GPTConfig NewGELU configure_gpt_optimizer"
    ),
    "models.torch.misc": "Reshape same_padding_transpose_after_stride valid_padding",
    "models.torch.modules": "MultiHeadAttention RelativeMultiHeadAttention SkipConnection",
    "models.torch.modules.multi_head_attention": "MultiHeadAttention",
    "models.torch.modules.noisy_layer": "NoisyLayer",
    "models.torch.modules.relative_multi_head_attention": (
        "RelativeMultiHeadAttention RelativePositionEmbedding"
    ),
    "models.torch.modules.skip_connection": "SkipConnection",
    "models.torch.torch_action_dist": (
        "TorchMultiActionDistribution TorchSlateMultiCategorical "
        "get_torch_categorical_class_with_temperature"
    ),
    "models.utils": "get_initializer get_initializer_fn",
    "offline": (
        "D4RLReader DatasetReader DatasetWriter FeatureImportance IOContext InputReader "
        "JsonReader JsonWriter MixedInput NoopOutput OutputWriter ShuffledInput "
        "get_dataset_and_shards get_offline_io_resource_bundles"
    ),
    "offline.d4rl_reader": "D4RLReader",
    "offline.dataset_reader": "DEFAULT_NUM_CPUS_PER_TASK DatasetReader get_dataset_and_shards",
    "offline.dataset_writer": "DatasetWriter",
    "offline.estimators": (
        "DirectMethod DoublyRobust ImportanceSampling OffPolicyEstimator WeightedImportanceSampling"
    ),
    "offline.estimators.direct_method": "DirectMethod",
    "offline.estimators.doubly_robust": "DoublyRobust",
    "offline.estimators.feature_importance": "FeatureImportance",
    "offline.estimators.fqe_torch_model": "FQETorchModel",
    "offline.estimators.importance_sampling": "ImportanceSampling",
    "offline.estimators.off_policy_estimator": "OffPolicyEstimator",
    "offline.estimators.weighted_importance_sampling": "WeightedImportanceSampling",
    "offline.feature_importance": "FeatureImportance get_feature_importance_on_index",
    "offline.input_reader": "InputReader",
    "offline.io_context": "IOContext",
    "offline.is_estimator": "ImportanceSamplingEstimator",
    "offline.json_reader": "JsonReader from_json_data postprocess_actions",
    "offline.json_writer": "JsonWriter",
    "offline.mixed_input": "MixedInput",
    "offline.offline_env_runner": "OfflineSingleAgentEnvRunner",
    "offline.offline_evaluation_runner": "OfflineEvaluationRunner TOTAL_EVAL_LOSS_KEY",
    "offline.offline_evaluation_runner_group": "OfflineEvaluationRunnerGroup",
    "offline.offline_evaluation_utils": (
        "compute_is_weights compute_q_and_v_values remove_time_dim"
    ),
    "offline.offline_evaluator": "OfflineEvaluator",
    "offline.offline_policy_evaluation_runner": (
        "MiniBatchEpisodeRayDataIterator OfflinePolicyEvaluationRunner "
        "OfflinePolicyEvaluationTypes OfflinePolicyPreEvaluator"
    ),
    "offline.offline_prelearner": "SCHEMA",
    "offline.output_writer": "NoopOutput OutputWriter",
    "offline.resource": "DEFAULT_NUM_CPUS_PER_TASK get_offline_io_resource_bundles",
    "offline.shuffled_input": "ShuffledInput",
    "offline.wis_estimator": "WeightedImportanceSamplingEstimator",
    "policy": "TFPolicy TorchPolicy build_policy_class build_tf_policy",
    "policy.dynamic_tf_policy": "DynamicTFPolicy TFMultiGPUTowerStack TOWER_SCOPE_NAME",
    "policy.dynamic_tf_policy_v2": "DynamicTFPolicyV2",
    "policy.eager_tf_policy": "EagerTFPolicy",
    "policy.eager_tf_policy_v2": "EagerTFPolicyV2",
    "policy.policy": "get_gym_space_from_struct_of_spaces get_gym_space_from_struct_of_tensors",
    "policy.policy_map": "PolicyMap",
    "policy.policy_template": "build_policy_class",
    "policy.rnn_sequencing": (
        "chop_into_sequences get_fold_unfold_fns pad_batch_to_sequences_of_same_size "
        "timeslice_along_seq_lens_with_overlap"
    ),
    "policy.sample_batch": "attempt_count_timesteps concat_samples_into_ma_batch",
    "policy.tf_mixins": (
        "EntropyCoeffSchedule GradStatsMixin KLCoeffMixin LearningRateSchedule "
        "TargetNetworkMixin ValueNetworkMixin compute_gradients"
    ),
    "policy.tf_policy": "TFPolicy",
    "policy.tf_policy_template": "build_tf_policy",
    "policy.torch_mixins": (
        "EntropyCoeffSchedule KLCoeffMixin LearningRateSchedule TargetNetworkMixin "
        "ValueNetworkMixin"
    ),
    "policy.torch_policy": "DirectStepOptimizer TorchPolicy",
    "policy.torch_policy_v2": "TorchPolicyV2",
    "utils": (
        "Filter FilterManager add_mixins check_train_results deprecation_warning flatten_dict "
        "force_list force_tuple lstm unflatten_dict"
    ),
    "utils.actor_manager": (
        "CallResult FaultAwareApply FaultTolerantActorManager RemoteCallResults ResultOrError"
    ),
    "utils.actors": (
        "TaskPool create_colocated_actors drop_colocated split_colocated try_create_colocated"
    ),
    "utils.annotations": "Deprecated ExperimentalAPI OldAPIStack is_overridden",
    "utils.checkpoints": (
        "CHECKPOINT_VERSION_LEARNER_AND_ENV_RUNNER convert_to_msgpack_checkpoint "
        "convert_to_msgpack_policy_checkpoint get_checkpoint_info try_import_msgpack"
    ),
    "utils.compression": (
        "compression_supported is_compressed pack pack_if_needed unpack unpack_if_needed"
    ),
    "utils.debug": "check_memory_leaks summarize update_global_seed_if_necessary",
    "utils.debug.deterministic": "update_global_seed_if_necessary",
    "utils.debug.memory": "check_memory_leaks",
    "utils.debug.summary": "summarize",
    "utils.error": (
        "ERR_MSG_INVALID_ENV_DESCRIPTOR ERR_MSG_NO_GPUS ERR_MSG_OLD_GYM_API "
        "ERR_MSG_TF_POLICY_CANNOT_SAVE_KERAS_MODEL ERR_MSG_TORCH_POLICY_CANNOT_SAVE_MODEL "
        "HOWTO_CHANGE_CONFIG MultiAgentEnvError NotSerializable UnsupportedSpaceException"
    ),
    "utils.exploration": (
        "Curiosity EpsilonGreedy Exploration GaussianNoise OrnsteinUhlenbeckNoise "
        "ParameterNoise PerWorkerEpsilonGreedy PerWorkerGaussianNoise "
        "PerWorkerOrnsteinUhlenbeckNoise RE3 Random SlateEpsilonGreedy SlateSoftQ SoftQ "
        "StochasticSampling ThompsonSampling UpperConfidenceBound"
    ),
    "utils.exploration.curiosity": "Curiosity",
    "utils.exploration.epsilon_greedy": "EpsilonGreedy",
    "utils.exploration.exploration": "Exploration",
    "utils.exploration.gaussian_noise": "GaussianNoise",
    "utils.exploration.ornstein_uhlenbeck_noise": "OrnsteinUhlenbeckNoise",
    "utils.exploration.parameter_noise": "ParameterNoise",
    "utils.exploration.per_worker_epsilon_greedy": "PerWorkerEpsilonGreedy",
    "utils.exploration.per_worker_gaussian_noise": "PerWorkerGaussianNoise",
    "utils.exploration.per_worker_ornstein_uhlenbeck_noise": "PerWorkerOrnsteinUhlenbeckNoise",
    "utils.exploration.random": "Random",
    "utils.exploration.random_encoder": "RE3 compute_states_entropy update_beta",
    "utils.exploration.slate_epsilon_greedy": "SlateEpsilonGreedy",
    "utils.exploration.slate_soft_q": "SlateSoftQ",
    "utils.exploration.soft_q": "SoftQ",
    "utils.exploration.stochastic_sampling": "StochasticSampling",
    "utils.exploration.thompson_sampling": "ThompsonSampling",
    "utils.exploration.upper_confidence_bound": "UpperConfidenceBound",
    "utils.filter": "ConcurrentMeanStdFilter Filter NoFilter RunningStat get_filter",
    "utils.filter_manager": "FilterManager",
    "utils.framework": "get_variable tf_function",
    "utils.from_config": "from_config from_file",
    "utils.images": "imread is_package_installed resize rgb2gray",
    "utils.lambda_defaultdict": "LambdaDefaultDict",
    "utils.metrics.learner_info": "LEARNER_INFO LearnerInfoBuilder",
    "utils.metrics.legacy_stats": "Stats compute_percentiles merge_stats",
    "utils.metrics.metrics_logger": "stats_from_legacy_state",
    "utils.metrics.ray_metrics": (
        "DEFAULT_HISTOGRAM_BOUNDARIES_LONG_EVENTS DEFAULT_HISTOGRAM_BOUNDARIES_SHORT_EVENTS "
        "TimerAndPrometheusLogger"
    ),
    "utils.metrics.stats.percentiles": "compute_percentiles",
    "utils.metrics.stats.utils": "batch_values_to_cpu safe_isnan single_value_to_cpu",
    "utils.metrics.utils": "to_snake_case",
    "utils.metrics.window_stat": "WindowStat",
    "utils.minibatch_utils": (
        "MiniBatchCyclicIterator MiniBatchDummyIterator MiniBatchIteratorBase "
        "MiniBatchRayDataIterator ShardBatchIterator ShardEpisodesIterator "
        "ShardObjectRefIterator"
    ),
    "utils.numpy": "aligned_array concat_aligned lstm make_action_immutable",
    "utils.policy": (
        "compute_log_likelihoods_from_input_dict create_policy_for_framework "
        "load_policies_from_checkpoint local_policy_inference "
        "parse_policy_specs_from_checkpoint validate_policy_id"
    ),
    "utils.postprocessing.episodes": (
        "remove_last_ts_from_data remove_last_ts_from_episodes_and_restore_truncateds"
    ),
    "utils.postprocessing.value_predictions": ("compute_value_targets extract_bootstrapped_values"),
    "utils.postprocessing.zero_padding": (
        "create_mask_and_seq_lens split_and_zero_pad split_and_zero_pad_n_episodes "
        "unpad_data_if_necessary"
    ),
    "utils.pre_checks.env": "check_multiagent_environments",
    "utils.replay_buffers": (
        "FifoReplayBuffer MultiAgentMixInReplayBuffer MultiAgentPrioritizedReplayBuffer "
        "MultiAgentReplayBuffer PrioritizedReplayBuffer ReplayBuffer ReplayMode "
        "ReservoirReplayBuffer StorageUnit utils"
    ),
    "utils.replay_buffers.base": "ReplayBufferInterface",
    "utils.replay_buffers.fifo_replay_buffer": "FifoReplayBuffer",
    "utils.replay_buffers.multi_agent_mixin_replay_buffer": "MultiAgentMixInReplayBuffer",
    "utils.replay_buffers.multi_agent_prioritized_replay_buffer": (
        "MultiAgentPrioritizedReplayBuffer"
    ),
    "utils.replay_buffers.multi_agent_replay_buffer": (
        "MultiAgentReplayBuffer ReplayMode merge_dicts_with_warning"
    ),
    "utils.replay_buffers.prioritized_replay_buffer": "PrioritizedReplayBuffer",
    "utils.replay_buffers.replay_buffer": "ReplayBuffer StorageUnit warn_replay_capacity",
    "utils.replay_buffers.reservoir_replay_buffer": "ReservoirReplayBuffer",
    "utils.replay_buffers.utils": (
        "patch_buffer_with_fake_sampling_method sample_min_n_steps_from_buffer "
        "update_priorities_in_episode_replay_buffer update_priorities_in_replay_buffer "
        "validate_buffer_config warn_replay_buffer_capacity"
    ),
    "utils.runners.runner": "Runner",
    "utils.runners.runner_group": "RunnerGroup",
    "utils.schedules.scheduler": "Scheduler",
    "utils.serialization": (
        "NOT_SERIALIZABLE check_if_args_kwargs_serializable "
        "convert_numpy_to_python_primitives deserialize_type serialize_type"
    ),
    "utils.sgd": "do_minibatch_sgd minibatches standardized",
    "utils.spaces.flexdict": "FlexDict",
    "utils.spaces.repeated": "Repeated",
    "utils.spaces.space_utils": "BatchedNdArray convert_element_to_space_type",
    "utils.tensor_dtype": "get_np_dtype tf_to_numpy_dtype_dict torch_to_numpy_dtype_dict",
    "utils.test_utils": (
        "ModelChecker check_inference_w_connectors check_learning_achieved "
        "check_off_policyness check_reproducibilty check_same_batch check_supported_spaces "
        "check_train_results check_train_results_new_api_stack get_cartpole_dataset_reader "
        "should_stop"
    ),
    "utils.tf_utils": (
        "TensorFlowVariables clip_gradients explained_variance flatten_inputs_to_1d_tensor "
        "get_gpu_devices get_placeholder get_tf_eager_cls_if_necessary huber_loss "
        "inverse_symlog l2_loss make_tf_callable minimize_and_clip one_hot "
        "reduce_mean_ignore_inf scope_vars symlog two_hot update_target_network "
        "warn_if_infinite_kl_divergence zero_logps_from_actions"
    ),
    "utils.threading": "with_lock",
    "utils.torch_utils": (
        "apply_grad_clipping concat_multi_gpu_td_errors two_hot warn_if_infinite_kl_divergence"
    ),
    "utils.typing": (
        "ActionConnectorDataType AgentConnectorDataType AgentConnectorsOutput IsPolicyToTrain "
        "LearnerStatsDict ModelInputDict MultiAgentPolicyConfigDict PolicyOutputType "
        "StateBatches TFPolicyV2Type TensorShape UnrollID"
    ),
}
"""Module -> names."""
