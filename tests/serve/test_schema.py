"""States as string enums, and the checks of configuration files."""

import json
import pickle

import pytest

from syncline.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentSchema,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    LoggingConfig,
    ProxyStatus,
    ReplicaState,
    ServeApplicationSchema,
    ServeDeploySchema,
    ServeStatus,
)

FILE = {
    "proxy_location": "HeadOnly",
    "http_options": {"host": "0.0.0.0", "port": 8080},
    "grpc_options": {"port": 9001},
    "logging_config": {"log_level": "DEBUG"},
    "applications": [
        {
            "name": "text",
            "route_prefix": "/text",
            "import_path": "models.text:app",
            "args": {"size": 3},
            "runtime_env": {"env_vars": {"A": "1"}},
            "deployments": [
                {"name": "Model", "num_replicas": 2, "user_config": {"scale": 1}},
                {"name": "Other", "autoscaling_config": {"max_replicas": 3}},
            ],
        },
        {"name": "image", "route_prefix": None, "import_path": "models:image"},
    ],
}


def with_change(change):
    data = json.loads(json.dumps(FILE))
    change(data)
    return data


def set_at(*path, value):
    def change(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


def test_states_compare_equal_to_their_names():
    deployment = DeploymentStatusOverview(
        status=DeploymentStatus.HEALTHY,
        status_trigger=DeploymentStatusTrigger.CONFIG_UPDATE_COMPLETED,
        replica_states={ReplicaState.RUNNING: 2},
        message="",
    )
    status = ServeStatus(
        proxies={"node": ProxyStatus.HEALTHY},
        applications={
            "app": ApplicationStatusOverview(
                status=ApplicationStatus.RUNNING,
                message="",
                last_deployed_time_s=1.0,
                deployments={"Model": deployment},
            )
        },
    )
    assert status.applications["app"].status == "RUNNING"
    assert status.applications["app"].deployments["Model"].replica_states.get("RUNNING") == 2
    assert pickle.loads(pickle.dumps(status)) == status
    plain = json.loads(json.dumps(status.to_dict()))
    assert plain["applications"]["app"]["deployments"]["Model"]["replica_states"] == {"RUNNING": 2}
    assert plain["proxies"] == {"node": "HEALTHY"}
    assert ServeStatus() == ServeStatus(proxies={}, applications={})


def test_file_is_read_and_written_back():
    schema = ServeDeploySchema.from_dict(FILE)
    assert schema == ServeDeploySchema(**FILE) == ServeDeploySchema.parse_obj(FILE)
    assert schema.http_options.port == 8080
    assert schema.logging_config == LoggingConfig(log_level="DEBUG")
    text, image = schema.applications
    assert (text.import_path, text.route_prefix, text.args) == (
        "models.text:app",
        "/text",
        {"size": 3},
    )
    assert text.deployment_names == ["Model", "Other"]
    assert text.deployments[0].num_replicas == 2
    assert text.deployments[0].max_ongoing_requests == 5
    assert text.deployments[0].options == {"num_replicas": 2, "user_config": {"scale": 1}}
    assert image.deployments == ()
    assert schema.to_dict() == FILE
    assert ServeDeploySchema.model_validate(schema.model_dump()) == schema
    assert json.loads(json.dumps(schema.dict())) == FILE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            set_at("application", value=[]),
            "unknown field 'application'.*Did you mean 'applications'",
        ),
        (lambda data: data.pop("applications"), "'applications' is missing"),
        (set_at("applications", value={}), "give a list"),
        (
            set_at("applications", 0, "nmae", value=1),
            r"In `.*applications\[0\]`: unknown field 'nmae'",
        ),
        (set_at("applications", 1, "import_path", value="models"), "not an import path"),
        (set_at("applications", 1, "import_path", value="a:b:c"), "not an import path"),
        (set_at("applications", 1, "import_path", value=".a:b"), "not an import path"),
        (lambda data: data["applications"][1].pop("import_path"), "'import_path' is missing"),
        (set_at("applications", 1, "name", value="text"), "the name 'text' twice"),
        (set_at("applications", 1, "name", value=""), "is empty or has '#'"),
        (set_at("applications", 1, "route_prefix", value="/text"), "route_prefix '/text' twice"),
        (set_at("applications", 1, "route_prefix", value="text"), "does not start with '/'"),
        (set_at("applications", 1, "port", value=80), r"applications\[1\]`: unknown field 'port'"),
        (set_at("applications", 0, "deployments", 0, "name", value="Other"), "name 'Other' twice"),
        (
            set_at("applications", 0, "deployments", 1, "num_replica", value=1),
            r"applications\[0\].deployments\[1\]`: unknown field 'num_replica'.*'num_replicas'",
        ),
        (
            set_at("applications", 0, "deployments", 1, "autoscaling_config", value={"min": 1}),
            r"applications\[0\].deployments\[1\].autoscaling_config`: unknown field 'min'",
        ),
        (
            set_at("applications", 0, "deployments", 0, "num_replicas", value=0),
            r"applications\[0\].deployments\[0\]`: `num_replicas=0` is out of range",
        ),
        (
            set_at("applications", 0, "external_scaler_enabled", value=True),
            "Other have autoscaling",
        ),
        (set_at("http_options", value={"prot": 1}), "In `.*http_options`: unknown field 'prot'"),
        (set_at("http_options", "port", value=-1), "`port=-1` is out of range"),
        (set_at("proxy_location", value="Head"), "give one of 'Disabled'"),
        (set_at("target_capacity", value=101), "at most 100"),
    ],
)
def test_mistake_in_a_file_is_named_with_its_place(change, message):
    with pytest.raises(ValueError, match=message):
        ServeDeploySchema.from_dict(with_change(change))


def test_unknown_keyword_has_the_nearest_name():
    with pytest.raises(TypeError, match="Did you mean 'route_prefix'"):
        ServeApplicationSchema(import_path="a:b", route_prefx="/")
    with pytest.raises(TypeError, match="Did you mean 'num_replicas'"):
        DeploymentSchema(name="a", num_replica=1)
    with pytest.raises(AttributeError, match="no attribute 'num_replica'"):
        DeploymentSchema(name="a").num_replica  # noqa: B018


def test_options_that_need_others_may_be_set_alone():
    schema = DeploymentSchema(name="a", placement_group_strategy="SPREAD")
    assert schema.options == {"placement_group_strategy": "SPREAD"}
