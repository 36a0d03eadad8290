"""The table: paths of Ray without a file of their own, and the modules that define their names.

A row is path -> {module: names}. "name" keeps its name, "home:name" gets another one, and "*" means
every public name of the module.
"""

from __future__ import annotations

from collections.abc import Mapping

Rows = Mapping[str, str]

_API = (
    "ObjectRef cancel get get_actor get_gpu_ids init is_initialized kill put remote shutdown wait"
)
_IDS = (
    "ActorClassID ActorID ClusterID FunctionID JobID NodeID PlacementGroupID TaskID UniqueID "
    "WorkerID"
)
_LISTS = "available_resources cluster_resources nodes timeline"
_MODES = "LOCAL_MODE SCRIPT_MODE WORKER_MODE"

_IDS_AND_REFS: Rows = {
    "syncline.core.ids": _IDS,
    "syncline.core.refs": (
        "DynamicObjectRefGenerator ObjectRef ObjectRef:ObjectID ObjectRefGenerator"
    ),
}
_WORKER: Rows = {
    "syncline.core.api": f"{_API} InitContext:RayContext",
    "syncline.ray_paths.worker": f"{_MODES} _global_node get_dashboard_url global_worker",
}
_STATE: Rows = {
    "syncline.core.api": _LISTS,
    "syncline.ray_paths.state": (
        "actors available_resources_per_node current_node_id jobs node_ids "
        "total_resources_per_node workers"
    ),
}
_UTILS: Rows = {
    "syncline.ray_paths.utilities": (
        "binary_to_hex estimate_available_memory get_default_ray_temp_dir get_directory_size_bytes "
        "get_num_cpus get_or_create_event_loop get_ray_temp_dir get_system_memory get_used_memory "
        "get_user_temp_dir hex_to_binary import_attr load_class split_address "
        "try_to_create_directory"
    )
}
_TEST_UTILS: Rows = {
    "syncline.ray_paths.waiting": (
        "Semaphore SignalActor async_wait_for_condition wait_for_condition"
    )
}
_USAGE: Rows = {
    "syncline.ray_paths.utilities": (
        "record_extra_usage_tag record_library_usage usage_stats_enabled"
    )
}
_NETWORK: Rows = {"syncline.ray_paths.utilities": "build_address find_free_port parse_address"}
_CLIENT: Rows = {"syncline.ray_paths.client": "ClientBuilder client"}
_SERVICES: Rows = {"syncline.ray_paths.utilities": "get_node_instance_id get_node_ip_address"}
_CONSTANTS: Rows = {"syncline.ray_paths.constants": "*"}
_LOCATIONS: Rows = {
    "syncline.ray_paths.locations": "get_local_object_locations get_object_locations"
}
_FREE: Rows = {"syncline.ray_paths.utilities": "free"}

PATHS: Mapping[str, Rows] = {
    "_common.network_utils": _NETWORK,
    "_common.test_utils": _TEST_UTILS,
    "_common.usage.usage_lib": _USAGE,
    "_common.utils": _UTILS,
    "_private.auto_init_hook": {"syncline.ray_paths.utilities": "auto_init_ray wrap_auto_init"},
    "_private.client_mode_hook": {
        "syncline.ray_paths.utilities": "client_mode_hook is_client_mode_enabled"
    },
    "_private.internal_api": _FREE,
    "_private.dict": {"syncline.tune.utils": "deep_update flatten_dict merge_dicts unflatten_dict"},
    "_private.ray_constants": _CONSTANTS,
    "_private.services": _SERVICES,
    "_private.state": _STATE,
    "_private.test_utils": _TEST_UTILS,
    "_private.usage.usage_lib": _USAGE,
    "_private.utils": _UTILS,
    "_private.worker": _WORKER,
    "_raylet": _IDS_AND_REFS,
    "autoscaler.sdk": {"syncline.ray_paths.autoscaler": "request_resources"},
    "autoscaler.sdk.sdk": {"syncline.ray_paths.autoscaler": "request_resources"},
    "client_builder": _CLIENT,
    "cloudpickle": {"cloudpickle": "*"},
    "cloudpickle.cloudpickle": {"cloudpickle.cloudpickle": "*"},
    "cluster_utils": {"syncline.core.cluster.cluster_utils": "AutoscalingCluster Cluster"},
    "dashboard.modules.job.common": {"syncline.job_submission": "JobErrorType JobInfo JobStatus"},
    "dashboard.modules.job.pydantic_models": {
        "syncline.job_submission": "DriverInfo JobDetails JobType"
    },
    "dashboard.modules.job.sdk": {"syncline.job_submission": "JobSubmissionClient"},
    "dag.class_node": {"syncline.core.dag.nodes": "ClassMethodNode ClassNode"},
    "dag.compiled_dag_node": {"syncline.core.dag.compiled": "CompiledDAG"},
    "dag.context": {"syncline.core.dag.context": "DAGContext"},
    "dag.dag_node": {"syncline.core.dag.nodes": "DAGNode"},
    "dag.function_node": {"syncline.core.dag.nodes": "FunctionNode"},
    "dag.input_node": {"syncline.core.dag.nodes": "DAGInputData InputAttributeNode InputNode"},
    "dag.output_node": {"syncline.core.dag.nodes": "MultiOutputNode"},
    "dag.vis_utils": {"syncline.core.dag.drawing": "plot"},
    "dag.collective_node": {"syncline.experimental.collective.nodes": "CollectiveOutputNode"},
    "experimental.collective.operations": {
        "syncline.experimental.collective.binding": "allgather allreduce reducescatter"
    },
    "experimental.util.types": {"syncline.experimental.collective.types": "ReduceOp"},
    "experimental.compiled_dag_ref": {
        "syncline.core.refs": "ObjectRef:CompiledDAGFuture ObjectRef:CompiledDAGRef"
    },
    "experimental": _LOCATIONS,
    "experimental.locations": _LOCATIONS,
    "experimental.multiprocessing": {"syncline.util.multiprocessing": "Pool"},
    "experimental.queue": {"syncline.util.queue": "Empty Full Queue"},
    "experimental.state": {},
    "experimental.state.api": {"syncline.util.state.api": "*"},
    "experimental.state.common": {"syncline.util.state.common": "*"},
    "experimental.state.exception": {"syncline.util.state.exception": "*"},
    "internal": _FREE,
    "internal.internal_api": _FREE,
    "job_config": {"syncline.ray_paths.job_config": "JobConfig"},
    "ray_constants": _CONSTANTS,
    "services": _SERVICES,
    "state": _STATE,
    "train._internal.session": {"syncline.train.session": "current_session:get_session"},
    "util.client": {
        "syncline.ray_paths.client": "RayAPIStub connect disconnect num_connected_contexts ray"
    },
    "util.client_connect": {"syncline.ray_paths.client": "connect disconnect"},
    "worker": _WORKER,
}
"""Modules without a file."""

NAMES: Rows = {
    **_IDS_AND_REFS,
    "syncline.core.lifecycle": "logger",
    "syncline.core.logging_config": "LoggingConfig",
    **_CLIENT,
    "syncline.ray_paths.worker": _MODES,
}
"""Names of `ray` itself that `syncline` defines elsewhere, beside its `__all__`."""
