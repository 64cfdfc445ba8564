"""ECS and the load balancer before it: the service, its tasks, its machines, its targets' health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadgen.emulator.api import ApiError, Handler, arn, at, page
from loadgen.emulator.api_logs import CONTAINER, group_name
from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.model import EndpointModel
from loadgen.emulator.units import Unit

_BAD_PAGE = "InvalidParameterException"
_STOPPED_KEPT_US = 3_600_000_000
_EVENTS = 100


def describe_services(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeServices' members: the one service, or a failure for each other name."""
    _check_cluster(model, request)
    config, asked = model.config, request["services"]
    ours = {config.endpoint_name, _service_arn(config)}
    failures = [{"arn": name, "reason": "MISSING"} for name in asked if name not in ours]
    return {"services": [_service(model)] if ours & set(asked) else [], "failures": failures}


def list_services(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ListServices' members."""
    _check_cluster(model, request)
    return {"serviceArns": [_service_arn(model.config)]}


def list_tasks(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ListTasks' members; stopped ones are kept for an hour."""
    _check_cluster(model, request)
    if request.get("serviceName", model.config.endpoint_name) not in {
        model.config.endpoint_name,
        _service_arn(model.config),
    }:
        raise ApiError("ServiceNotFoundException", "Service not found.")
    stopped = request.get("desiredStatus", "RUNNING") == "STOPPED"
    found = [_task_arn(model.config, unit) for unit in _tasks(model) if (unit.ended_us is not None) == stopped]
    limit, token = min(request.get("maxResults", 100), 100), request.get("nextToken")
    chosen, following = page(found, token=token, limit=limit, newest_first=False, bad_token=_BAD_PAGE)
    return {"taskArns": chosen, "nextToken": following}


def describe_tasks(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeTasks' members."""
    _check_cluster(model, request)
    known = {unit.unit_id: unit for unit in _tasks(model)}
    asked = [str(name).rpartition("/")[2] for name in request["tasks"]]
    found = [_task(model, known[name]) for name in asked if name in known]
    failures = [{"arn": name, "reason": "MISSING"} for name in asked if name not in known]
    return {"tasks": found, "failures": failures}


def describe_container_instances(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeContainerInstances' members."""
    _check_cluster(model, request)
    config = model.config
    known = {_machine_arn(config, unit): unit for unit in _units(model) if _machine_arn(config, unit)}
    found, failures = [], []
    for name in request["containerInstances"]:
        unit = known.get(name)
        machine = None if unit is None else unit.timeline.machine
        if unit is None or (machine is not None and machine.joined_us > model.now_us):
            failures.append({"arn": name, "reason": "MISSING"})
            continue
        joined_us = machine.joined_us if machine is not None else model.fleet.created_us
        found.append(
            {
                "containerInstanceArn": name,
                "ec2InstanceId": machine.machine_id if machine is not None else "i-0spare00000000000",
                "status": "ACTIVE",
                "registeredAt": at(joined_us),
                "agentConnected": True,
                "capacityProviderName": _provider(config),
            }
        )
    return {"containerInstances": found, "failures": failures}


def describe_task_definition(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeTaskDefinition's members; the environment holds a token, so that readers must redact."""
    config = model.config
    stated = str(request["taskDefinition"])
    if stated.rpartition("/")[2].partition(":")[0] != config.endpoint_name:
        raise ApiError("ClientException", "Unable to describe task definition.")
    container = {
        "name": CONTAINER,
        "image": _image(config),
        "essential": True,
        "environment": [{"name": "HF_TOKEN", "value": "emulated-secret-value"}, {"name": "MAX_LEN", "value": "8192"}],
        "healthCheck": {"command": ["CMD-SHELL", "curl -f http://localhost:8000/health"], "interval": 10, "retries": 3},
        "logConfiguration": {
            "logDriver": "awslogs",
            "options": {
                "awslogs-group": group_name(config),
                "awslogs-stream-prefix": "ecs",
                "awslogs-region": config.region,
            },
        },
    }
    definition = {
        "taskDefinitionArn": _definition_arn(config),
        "family": config.endpoint_name,
        "revision": 1,
        "networkMode": "awsvpc",
        "containerDefinitions": [container],
    }
    return {"taskDefinition": definition}


def describe_capacity_providers(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeCapacityProviders' members: without names those of the whole account, another team's too."""
    config = model.config
    found: dict[str, dict[str, Any]] = {
        name: {"name": name, "status": "ACTIVE"} for name in ("FARGATE", "another-teams")
    }
    if config.cluster.launch_type == "EC2":
        group = arn(config, "autoscaling", f"autoScalingGroup:1:autoScalingGroupName/{_provider(config)}")
        told = {"autoScalingGroupArn": group, "managedScaling": {"status": "ENABLED", "targetCapacity": 100}}
        found[_provider(config)] = {"name": _provider(config), "status": "ACTIVE", "autoScalingGroupProvider": told}
    wanted = request.get("capacityProviders") or list(found)
    missing = [{"arn": name, "reason": "MISSING"} for name in wanted if name not in found]
    return {"capacityProviders": [found[name] for name in wanted if name in found], "failures": missing}


def describe_target_health(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeTargetHealth's members: tasks from their start on, instances from their joining on."""
    if request["TargetGroupArn"] != target_group(model.config):
        raise ApiError("TargetGroupNotFound", "One or more target groups not found")
    found = []
    for unit in _units(model):
        start, now_us = unit.timeline, model.now_us
        on_ecs = model.config.platform == "ecs"
        machine = start.machine
        begin_us = start.container_started_us if on_ecs or machine is None else machine.joined_us
        if begin_us > now_us or unit.state == "terminated":
            continue
        state = "healthy" if start.in_service_us <= now_us else "initial"
        state = "draining" if unit.ended_us is not None else state
        health = {"State": state}
        if state == "initial":
            health["Reason"] = "Elb.InitialHealthChecking"
        name = address(unit) if on_ecs else unit.unit_id
        found.append({"Target": {"Id": name, "Port": 8000}, "HealthCheckPort": "8000", "TargetHealth": health})
    return {"TargetHealthDescriptions": found}


OPERATIONS: dict[str, Handler] = {
    "DescribeServices": describe_services,
    "ListServices": list_services,
    "ListTasks": list_tasks,
    "DescribeTasks": describe_tasks,
    "DescribeContainerInstances": describe_container_instances,
    "DescribeTaskDefinition": describe_task_definition,
    "DescribeCapacityProviders": describe_capacity_providers,
}
BALANCER_OPERATIONS: dict[str, Handler] = {"DescribeTargetHealth": describe_target_health}


def target_group(config: EmulatorConfig) -> str:
    """Return the target group's name in full."""
    return arn(config, "elasticloadbalancing", f"targetgroup/{config.endpoint_name}/0123456789abcdef")


def address(unit: Unit) -> str:
    """Return a unit's private address."""
    return f"10.0.{unit.timeline.index // 250 + 1}.{unit.timeline.index % 250 + 1}"


def _units(model: EndpointModel) -> list[Unit]:
    assert model.units is not None
    return model.units.instances


def _tasks(model: EndpointModel) -> list[Unit]:
    """Return the tasks that can be seen: those created by now, and those that stopped within the hour."""
    now_us = model.now_us
    return [
        unit
        for unit in _units(model)
        if unit.timeline.created_us <= now_us and (unit.ended_us is None or unit.ended_us > now_us - _STOPPED_KEPT_US)
    ]


def _service(model: EndpointModel) -> dict[str, Any]:
    config = model.config
    alive = [unit for unit in _tasks(model) if unit.ended_us is None]
    running = [unit for unit in alive if unit.timeline.container_started_us <= model.now_us]
    balancer = {"targetGroupArn": target_group(config), "containerName": CONTAINER, "containerPort": 8000}
    return {
        "serviceArn": _service_arn(config),
        "serviceName": config.endpoint_name,
        "clusterArn": arn(config, "ecs", f"cluster/{config.endpoint_name}"),
        "status": "ACTIVE",
        "desiredCount": model.fleet.desired,
        "runningCount": len(running),
        "pendingCount": len(alive) - len(running),
        "capacityProviderStrategy": [{"capacityProvider": _provider(config), "weight": 1, "base": 0}],
        "taskDefinition": _definition_arn(config),
        "loadBalancers": [balancer] if config.cluster.load_balancer else [],
        "events": _events(model),
        "createdAt": at(model.fleet.created_us),
    }


def _events(model: EndpointModel) -> list[dict[str, Any]]:
    """Return the service's events, newest first: starts of tasks, waits for a place, targets."""
    config, now_us = model.config, model.now_us
    name = f"(service {config.endpoint_name})"
    found: list[tuple[int, str, str]] = []
    for unit in _units(model):
        start, key = unit.timeline, unit.unit_id
        found.append((start.created_us + 400_000, f"{key}-s", f"{name} has started 1 tasks: (task {key})."))
        if start.machine is not None and config.cluster.launch_type == "EC2":
            text = f"{name} was unable to place a task because no container instance met all of its requirements."
            found.append((start.created_us + 300_000, f"{key}-p", text))
        if config.cluster.load_balancer:
            text = f"{name} registered 1 targets in (target-group {target_group(config)})"
            found.append((start.container_started_us + 900_000, f"{key}-t", text))
    shown = sorted((event for event in found if event[0] <= now_us), reverse=True)[:_EVENTS]
    return [{"id": key, "createdAt": at(at_us), "message": text} for at_us, key, text in shown]


def _task(model: EndpointModel, unit: Unit) -> dict[str, Any]:
    config, start, now_us = model.config, unit.timeline, model.now_us

    def seen(us: int) -> Any:
        return at(us) if us <= now_us else None

    running, healthy = start.container_started_us <= now_us, start.healthy_us <= now_us
    placed = start.machine is None or start.machine.usable_us <= now_us
    stopped = unit.state == "terminated"
    health = "HEALTHY" if healthy else "UNKNOWN"
    pulled = start.pull_started_us <= now_us
    status = "PROVISIONING" if not placed else "PENDING" if not running else "RUNNING"
    task: dict[str, Any] = {
        "taskArn": _task_arn(config, unit),
        "clusterArn": arn(config, "ecs", f"cluster/{config.endpoint_name}"),
        "taskDefinitionArn": _definition_arn(config),
        "group": f"service:{config.endpoint_name}",
        "startedBy": "ecs-svc/0000000000000000001",
        "launchType": config.cluster.launch_type,
        "lastStatus": "STOPPED" if stopped else status,
        "desiredStatus": "STOPPED" if unit.ended_us is not None else "RUNNING",
        "healthStatus": health,
        "createdAt": at(start.created_us),
        "pullStartedAt": seen(start.pull_started_us),
        "pullStoppedAt": seen(start.pull_finished_us),
        "startedAt": seen(start.container_started_us),
        "stoppedAt": at(unit.ended_us) if stopped and unit.ended_us is not None else None,
        "stopCode": "ServiceSchedulerInitiated" if unit.ended_us is not None else None,
        "version": 1 + sum(us <= now_us for us in (start.pull_started_us, start.container_started_us)),
        "containers": [
            {
                "name": CONTAINER,
                "image": _image(config),
                "imageDigest": "sha256:" + "5f0c8d3d" * 8 if start.pull_finished_us <= now_us else None,
                "lastStatus": "RUNNING" if running else "PENDING",
                "healthStatus": health,
            }
        ],
    }
    if pulled:
        details = [{"name": "privateIPv4Address", "value": address(unit)}]
        task["attachments"] = [
            {"id": unit.unit_id, "type": "ElasticNetworkInterface", "status": "ATTACHED", "details": details}
        ]
        task["connectivity"], task["connectivityAt"] = "CONNECTED", at(start.launched_us)
    if config.cluster.launch_type == "EC2" and placed:
        task["containerInstanceArn"] = _machine_arn(config, unit)
        task["capacityProviderName"] = _provider(config)
    if config.cluster.launch_type == "FARGATE":
        task["platformVersion"] = "1.4.0"
    return task


def _machine_arn(config: EmulatorConfig, unit: Unit) -> str:
    machine = unit.timeline.machine
    key = machine.machine_id.removeprefix("i-") if machine is not None else "spare"
    return arn(config, "ecs", f"container-instance/{config.endpoint_name}/{key}")


def _task_arn(config: EmulatorConfig, unit: Unit) -> str:
    return arn(config, "ecs", f"task/{config.endpoint_name}/{unit.unit_id}")


def _service_arn(config: EmulatorConfig) -> str:
    return arn(config, "ecs", f"service/{config.endpoint_name}/{config.endpoint_name}")


def _provider(config: EmulatorConfig) -> str:
    return "FARGATE" if config.cluster.launch_type == "FARGATE" else f"{config.endpoint_name}-machines"


def _definition_arn(config: EmulatorConfig) -> str:
    return arn(config, "ecs", f"task-definition/{config.endpoint_name}:1")


def _image(config: EmulatorConfig) -> str:
    return f"763104351884.dkr.ecr.{config.region}.amazonaws.com/vllm:0.14.0-gpu"


def _check_cluster(model: EndpointModel, request: Mapping[str, Any]) -> None:
    name = str(request.get("cluster", "default")).rpartition("/")[2]
    if name != model.config.endpoint_name:
        raise ApiError("ClusterNotFoundException", "Cluster not found.")
