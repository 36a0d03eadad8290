"""Options of deployments and proxies: defaults, accepted forms, and the error for every mistake."""

import inspect
import pickle

import pytest

from syncline.core import api
from syncline.serve.config import (
    AggregationFunction,
    AutoscalingConfig,
    AutoscalingContext,
    AutoscalingPolicy,
    BackpressureConfig,
    ControllerOptions,
    DeploymentActorConfig,
    DeploymentConfig,
    GangSchedulingConfig,
    HTTPOptions,
    LoggingConfig,
    ProxyLocation,
    RequestRouterConfig,
    TracingConfig,
    gRPCOptions,
)


def configured(**options):
    return DeploymentConfig().with_options("deployment", options)


def policy(context):
    return 1, {}


@api.remote
class Tree:
    pass


def test_defaults_are_those_of_ray():
    config = DeploymentConfig()
    assert (config.num_replicas, config.max_ongoing_requests, config.max_queued_requests) == (
        1,
        5,
        -1,
    )
    assert config.ray_actor_options == {"num_cpus": 1}
    assert (config.graceful_shutdown_wait_loop_s, config.graceful_shutdown_timeout_s) == (2, 20)
    assert (config.health_check_period_s, config.health_check_timeout_s) == (10, 30)
    assert (config.max_constructor_retry_count, config.rolling_update_percentage) == (20, 0.2)
    assert config.autoscaling_config is None
    assert config.resources == {"CPU": 1}
    scaling = AutoscalingConfig()
    assert (scaling.min_replicas, scaling.max_replicas, scaling.first_replicas) == (1, 1, 1)
    assert (scaling.target_ongoing_requests, scaling.look_back_period_s) == (2, 30)
    assert (scaling.upscale_delay_s, scaling.downscale_delay_s) == (30, 600)
    assert scaling.aggregation_function == "mean"


def test_dicts_become_option_classes():
    config = configured(
        autoscaling_config={"min_replicas": 0, "max_replicas": 3, "aggregation_function": "max"},
        backpressure_config={"status_code": 429, "retry_after_s": 2},
        logging_config={"log_level": 10, "encoding": "JSON"},
        request_router_config={"request_router_kwargs": {"a": 1}},
        deployment_actors=[{"name": "tree", "actor_class": Tree, "init_args": [1]}],
    )
    assert config.autoscaling_config == AutoscalingConfig(
        min_replicas=0, max_replicas=3, aggregation_function=AggregationFunction.MAX
    )
    assert config.backpressure_config == BackpressureConfig(status_code=429, retry_after_s=2)
    assert config.logging_config == LoggingConfig(log_level="DEBUG", encoding="JSON")
    assert config.request_router_config == RequestRouterConfig(request_router_kwargs={"a": 1})
    assert config.deployment_actors[0].init_args == (1,)
    assert pickle.loads(pickle.dumps(configured(user_config={"a": [1]}))).user_config == {"a": [1]}


def test_auto_autoscales_from_one_to_a_hundred():
    auto = configured(num_replicas="auto").autoscaling_config
    assert (auto.min_replicas, auto.max_replicas, auto.target_ongoing_requests) == (1, 100, 2)
    auto = configured(
        num_replicas="auto", autoscaling_config={"max_replicas": 7}
    ).autoscaling_config
    assert auto.max_replicas == 7
    given = AutoscalingConfig(target_ongoing_requests=5)
    auto = configured(num_replicas="auto", autoscaling_config=given).autoscaling_config
    assert (auto.max_replicas, auto.target_ongoing_requests) == (100, 5)


def test_fixed_number_and_autoscaling_replace_each_other():
    scaled = configured(autoscaling_config={"max_replicas": 4})
    fixed = scaled.with_options("options", {"num_replicas": 3})
    assert (fixed.autoscaling_config, fixed.first_replicas) == (None, 3)
    again = fixed.with_options(
        "options", {"autoscaling_config": {"initial_replicas": 2, "max_replicas": 4}}
    )
    assert again.first_replicas == 2
    assert scaled.with_options("options", {"num_replicas": None}).autoscaling_config is not None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_replica": 2}, TypeError, "no argument 'num_replica'.*Did you mean 'num_replicas'"),
        ({"version": "1"}, ValueError, "`version` of `deployment` was removed"),
        ({"num_replicas": 0}, ValueError, "`num_replicas=0` is out of range: give at least 1"),
        ({"num_replicas": "many"}, ValueError, "give an integer or 'auto'"),
        ({"num_replicas": 1.5}, TypeError, "is a float: give an integer"),
        ({"num_replicas": True}, TypeError, "is a bool"),
        ({"num_replicas": 2, "autoscaling_config": {}}, ValueError, "mutually exclusive"),
        ({"autoscaling_config": {"min_replica": 1}}, TypeError, "Did you mean 'min_replicas'"),
        ({"autoscaling_config": 3}, TypeError, "give a dict or a AutoscalingConfig"),
        (
            {"autoscaling_config": {"min_replicas": 3, "max_replicas": 2}},
            ValueError,
            "In `autoscaling_config`: `min_replicas=3` is more than `max_replicas=2`",
        ),
        (
            {"autoscaling_config": {"initial_replicas": 5, "max_replicas": 2}},
            ValueError,
            "`initial_replicas=5` is outside",
        ),
        ({"autoscaling_config": {"upscale_delay_s": "1"}}, TypeError, "is a str: give a number"),
        ({"autoscaling_config": {"look_back_period_s": 0}}, ValueError, "give more than 0"),
        ({"autoscaling_config": {"policy": {"policy_function": 3}}}, TypeError, "a function"),
        (
            {"autoscaling_config": {"aggregation_function": "median"}},
            ValueError,
            "give one of 'mean', 'max', 'min'",
        ),
        ({"max_ongoing_requests": 0}, ValueError, "give at least 1"),
        ({"max_ongoing_requests": None}, ValueError, "max_ongoing_requests=None"),
        ({"max_ongoing_requests": float("nan")}, TypeError, "give an integer"),
        ({"max_queued_requests": 0}, ValueError, "would refuse every request"),
        ({"max_queued_requests": -2}, ValueError, "give at least -1"),
        ({"max_queued_requests": 1.0}, TypeError, "give an integer"),
        ({"backpressure_config": {"status_code": 500}}, ValueError, "give one of 503, 429"),
        ({"backpressure_config": {"retry_after": 1}}, ValueError, "Did you mean 'retry_after_s'"),
        ({"user_config": {"a": {1}}}, ValueError, "`user_config` is not JSON-serializable"),
        ({"health_check_period_s": 0}, ValueError, "give more than 0"),
        ({"graceful_shutdown_timeout_s": -1}, ValueError, "give at least 0"),
        ({"graceful_shutdown_timeout_s": float("inf")}, ValueError, "not finite"),
        ({"rolling_update_percentage": 0}, ValueError, "more than 0 and at most 1"),
        ({"rolling_update_percentage": 1.1}, ValueError, "more than 0 and at most 1"),
        ({"max_surge_percent": 101}, ValueError, "at least 0 and at most 100"),
        ({"max_constructor_retry_count": 0}, ValueError, "at least 1"),
        ({"max_replicas_per_node": 101}, ValueError, "at least 1 and at most 100"),
        ({"max_replicas_per_node": "1"}, TypeError, "an integer or None"),
        (
            {"max_replicas_per_node": 1, "placement_group_bundles": [{"CPU": 1}]},
            ValueError,
            "mutually exclusive",
        ),
        ({"ray_actor_options": 3}, TypeError, "give a dict"),
        ({"ray_actor_options": {"num_cpu": 1}}, ValueError, "Did you mean 'num_cpus'"),
        ({"ray_actor_options": {"name": "x"}}, ValueError, "a replica does not take"),
        ({"ray_actor_options": {"num_cpus": -1}}, ValueError, "`num_cpus=-1`"),
        ({"ray_actor_options": {"num_gpus": "1"}}, TypeError, "`num_gpus='1'`"),
        ({"ray_actor_options": {"resources": {"cpu": 1}}}, ValueError, "Did you mean 'CPU'"),
        ({"ray_actor_options": {"runtime_env": {"env_var": {}}}}, ValueError, "env_vars"),
        ({"placement_group_strategy": "PACK"}, ValueError, "needs `placement_group_bundles`"),
        ({"placement_group_bundles": []}, ValueError, "without bundles"),
        ({"placement_group_bundles": {"CPU": 1}}, TypeError, "a list of dicts"),
        (
            {"placement_group_bundles": [{"CPU": 1}], "placement_group_strategy": "TIGHT"},
            ValueError,
            "'TIGHT'",
        ),
        (
            {"placement_group_bundles": [{"CPU": 1}], "ray_actor_options": {"num_cpus": 2}},
            ValueError,
            "a replica needs CPU: 2, but the first of",
        ),
        (
            {
                "placement_group_bundles": [{"CPU": 1}] * 3,
                "placement_group_bundle_label_selector": [{"a": "b"}] * 2,
            },
            ValueError,
            "has 2 items for 3 bundles",
        ),
        (
            {
                "placement_group_bundles": [{"CPU": 1}],
                "placement_group_bundle_label_selector": [{"a": 1}],
            },
            TypeError,
            "labels and their values are strings",
        ),
        (
            {"ray_actor_options": {"fallback_strategy": [{"zone": "a"}]}},
            ValueError,
            "give only 'label_selector'",
        ),
        ({"logging_config": {"log_level": "LOUD"}}, ValueError, "`log_level='LOUD'` is unknown"),
        ({"logging_config": {"log_levels": "INFO"}}, ValueError, "Did you mean 'log_level'"),
        ({"logging_config": "DEBUG"}, TypeError, "a dict or a LoggingConfig"),
        ({"request_router_config": {"initial_backoff_s": 0}}, ValueError, "more than 0"),
        ({"gang_scheduling_config": {}}, TypeError, "'gang_size' is missing"),
        (
            {"gang_scheduling_config": {"gang_size": 2}, "num_replicas": 3},
            ValueError,
            "`num_replicas=3` is not a multiple of `gang_size=2`: give 2 or 4",
        ),
        (
            {"gang_scheduling_config": {"gang_size": 4}},
            ValueError,
            "`num_replicas=1` is not a multiple of `gang_size=4`: give 4",
        ),
        (
            {"gang_scheduling_config": {"gang_size": 2}, "autoscaling_config": {"max_replicas": 5}},
            ValueError,
            "`autoscaling_config.max_replicas=5` is not a multiple of `gang_size=2`: give 4 or 6",
        ),
        (
            {
                "gang_scheduling_config": {"gang_size": 2},
                "autoscaling_config": {"min_replicas": 3, "max_replicas": 4},
            },
            ValueError,
            "`autoscaling_config.min_replicas=3` is not a multiple",
        ),
        (
            {
                "gang_scheduling_config": {"gang_size": 2},
                "autoscaling_config": {"initial_replicas": 3, "max_replicas": 4},
            },
            ValueError,
            "`autoscaling_config.initial_replicas=3` is not a multiple",
        ),
        (
            {"gang_scheduling_config": {"gang_size": 200}, "num_replicas": "auto"},
            ValueError,
            "`autoscaling_config.max_replicas=100` is not a multiple of `gang_size=200`: give 200",
        ),
        (
            {"deployment_actors": [{"name": "a"}]},
            TypeError,
            r"In `deployment_actors\[0\]`: the field 'actor_class' is",
        ),
        ({"deployment_actors": {"name": "a"}}, TypeError, "give a list"),
        ({"deployment_actors": [{"name": "a", "actor_class": 3}]}, TypeError, "decorated"),
        (
            {"deployment_actors": [{"name": "a", "actor_class": Tree}] * 2},
            ValueError,
            "two actors named 'a'",
        ),
        ({"idempotent": 1}, TypeError, "True or False"),
    ],
    ids=str,
)
def test_wrong_option_is_refused_with_its_value(options, error, message):
    with pytest.raises(error, match=message):
        configured(**options)


def test_placement_groups_are_accepted():
    config = configured(
        placement_group_bundles=[{"CPU": 1, "GPU": 1}, {"CPU": 2}],
        ray_actor_options={"num_gpus": 1, "resources": None},
    )
    assert config.resources == {"CPU": 1, "GPU": 1}


def test_one_label_selector_is_for_all_bundles():
    bundles = [{"CPU": 1}, {"CPU": 2}]
    for given, expected in (
        ([{"zone": "a"}], [{"zone": "a"}] * 2),
        ([{"zone": "a"}, {}], [{"zone": "a"}, {}]),
        (None, []),
    ):
        config = configured(
            placement_group_bundles=bundles, placement_group_bundle_label_selector=given
        )
        assert config.bundle_labels == expected


def test_gangs_take_multiples_of_their_size():
    assert configured(gang_scheduling_config={"gang_size": 2}, num_replicas=4).first_replicas == 4
    automatic = configured(gang_scheduling_config={"gang_size": 3}, num_replicas="auto")
    assert automatic.first_replicas == 3
    scaling = {"min_replicas": 0, "max_replicas": 6}
    config = configured(gang_scheduling_config={"gang_size": 3}, autoscaling_config=scaling)
    assert config.first_replicas == 0


@pytest.mark.parametrize(
    "other", [{"max_replicas_per_node": 1}, {"placement_group_strategy": "PACK"}], ids=str
)
def test_gangs_exclude_other_rules_of_placement(other):
    bundles = [{"CPU": 1}] if "placement_group_strategy" in other else None
    with pytest.raises(ValueError, match="mutually exclusive"):
        configured(
            gang_scheduling_config=GangSchedulingConfig(gang_size=1),
            placement_group_bundles=bundles,
            **other,
        )


def test_replicas_of_gangs_cannot_be_restarted_alone():
    with pytest.raises(NotImplementedError, match="RESTART_REPLICA"):
        GangSchedulingConfig(gang_size=2, runtime_failure_policy="RESTART_REPLICA")


@pytest.mark.parametrize("option", ["name", "namespace", "lifetime", "get_if_exists"])
def test_options_that_serve_sets_are_refused_for_deployment_actors(option):
    with pytest.raises(ValueError, match=f"{option!r}, which serve sets"):
        DeploymentActorConfig(name="a", actor_class=Tree, actor_options={option: "x"})


def test_policies_are_functions_or_import_paths():
    assert AutoscalingPolicy().is_default
    scaling = AutoscalingConfig(policy=policy)
    assert scaling.policy.load() is policy
    assert not scaling.policy.is_default
    assert AutoscalingPolicy(policy_function="os.path:join").load().__name__ == "join"
    with pytest.raises(AttributeError):
        AutoscalingPolicy(policy_function="os.path:joint").load()


def test_autoscaling_context_computes_lazily():
    calls = []
    facts = dict.fromkeys(inspect.signature(AutoscalingContext).parameters)
    facts.update(total_num_requests=lambda: calls.append(1) or 5.0, total_queued_requests=7.0)
    context = AutoscalingContext(**facts)
    assert not calls
    assert (context.total_num_requests, context.total_num_requests) == (5.0, 5.0)
    assert calls == [1]
    assert context.total_running_requests == 0
    assert context.aggregated_metrics is None


def test_http_options_have_safe_defaults():
    options = HTTPOptions()
    assert (options.host, options.port, options.keep_alive_timeout_s) == ("127.0.0.1", 8000, 90)
    assert (options.max_body_bytes, options.max_header_bytes) == (2**30, 65_536)
    assert options.is_enabled
    assert not HTTPOptions(host=None).is_enabled
    assert not HTTPOptions(location="NoServer").is_enabled


@pytest.mark.parametrize(
    ("cls", "options", "error", "message"),
    [
        (HTTPOptions, {"hots": "::"}, TypeError, "Did you mean 'host'"),
        (HTTPOptions, {"port": 70_000}, ValueError, "at most 65535"),
        (HTTPOptions, {"port": "80"}, TypeError, "give an integer"),
        (HTTPOptions, {"middlewares": [1]}, ValueError, "not supported"),
        (HTTPOptions, {"num_cpus": 1}, ValueError, "not supported"),
        (HTTPOptions, {"root_path": "models/"}, ValueError, "must start with '/'"),
        (HTTPOptions, {"ssl_keyfile": "key.pem"}, ValueError, "needs `ssl_certfile`"),
        (HTTPOptions, {"ssl_certfile": "cert.pem"}, ValueError, "needs `ssl_keyfile`"),
        (HTTPOptions, {"ssl_ca_certs": "ca.pem"}, ValueError, "no effect without TLS"),
        (HTTPOptions, {"max_body_bytes": 0}, ValueError, "at least 1"),
        (HTTPOptions, {"header_timeout_s": 0}, ValueError, "more than 0"),
        (HTTPOptions, {"location": "Everywhere"}, ValueError, "'EveryNode'"),
        (gRPCOptions, {"grpc_servicer_functions": ["add"]}, ValueError, "not an import path"),
        (gRPCOptions, {"grpc_servicer_functions": "a.b"}, TypeError, "a list of strings"),
        (ControllerOptions, {"runtime_env": {"pip": []}}, ValueError, "'env_vars' only"),
        (ControllerOptions, {"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "a string"),
        (TracingConfig, {"sampling_ratio": 2}, ValueError, "at most 1"),
        (LoggingConfig, {"log_level": 11}, ValueError, "not a standard level"),
        (LoggingConfig, {"additional_log_standard_attrs": ["naem"]}, ValueError, "'name'"),
        (DeploymentActorConfig, {"name": "", "actor_class": "a:B"}, ValueError, "empty"),
        (AutoscalingConfig, {"max_replica": 1}, TypeError, "Did you mean 'max_replicas'"),
    ],
    ids=str,
)
def test_wrong_field_is_refused_with_its_value(cls, options, error, message):
    with pytest.raises(error, match=message):
        cls(**options)


def test_errors_of_types_are_also_the_value_errors_of_rays_classes():
    with pytest.raises(ValueError, match="give a number"):
        AutoscalingConfig(upscale_delay_s="1")


def test_proxy_locations_have_their_older_name():
    assert ProxyLocation.of("NoServer") is ProxyLocation.Disabled
    assert ProxyLocation.of("HeadOnly") is ProxyLocation.HeadOnly
    assert ProxyLocation.EveryNode == "EveryNode"
    with pytest.raises(TypeError, match="one of"):
        ProxyLocation.of(3)
