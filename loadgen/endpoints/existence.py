"""Before the first request: whether a SageMaker endpoint exists and serves, as far as one may ask.

A wrong name is otherwise found out request by request, each a 400. Whoever may only invoke is not told, and that is
no reason not to: then the first answers tell.
"""

from __future__ import annotations

import logging
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from loadgen.scenario import Scenario
from traces.errors import UnreachableError

_TIMEOUT_S = 5
_SERVING = {"InService", "Updating", "SystemUpdating", "RollingBack"}

logger = logging.getLogger("ramptrace")


def refuse_missing(scenario: Scenario, *, loopback: bool) -> None:
    """Raise `UnreachableError` for an endpoint, or an inference component, that is not there or does not serve.

    `loopback`: the address of the target is one of this machine, and stands in for the control plane, too.
    """
    target = scenario.target
    client = _client(scenario, loopback=loopback)
    if client is None:
        return
    endpoint, component = target.endpoint_name or "", target.inference_component
    asked = [("describe_endpoint", {"EndpointName": endpoint}, "EndpointStatus", f'the endpoint "{endpoint}"')]
    if component:
        words = f'the inference component "{component}"'
        name = {"InferenceComponentName": component}
        asked.append(("describe_inference_component", name, "InferenceComponentStatus", words))
    for operation, name, status, words in asked:
        try:
            found = getattr(client, operation)(**name)[status]
        except ClientError as error:
            if "could not find" in error.response["Error"].get("Message", "").lower():
                raise UnreachableError(
                    f"target: {words} does not exist in {client.meta.region_name}; check the name, the region and the "
                    "account (`aws sagemaker list-endpoints`)"
                ) from None
            logger.info("%s cannot be looked up (%s)", words, error.response["Error"].get("Code"))
            return
        except (BotoCoreError, KeyError) as error:
            logger.info("%s cannot be looked up (%s)", words, type(error).__name__)
            return
        if found not in _SERVING:
            raise UnreachableError(f"target: {words} is {found}, not InService; start when it is")


def _client(scenario: Scenario, *, loopback: bool) -> Any | None:
    """Return a client of the control plane: that of the scenario's collector or emulator, else AWS's own."""
    collect, emulator = scenario.collect, scenario.emulator
    address = (collect and collect.endpoint_url) or (emulator and emulator.url)
    if address is None and loopback:
        address = scenario.target.url
    limits = Config(connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"total_max_attempts": 1})
    try:
        return botocore.session.get_session().create_client(
            "sagemaker",
            region_name=scenario.target.region,
            endpoint_url=address,
            verify=scenario.target.verify_tls,
            config=limits,
        )
    except (BotoCoreError, ValueError) as error:
        logger.info("the endpoint cannot be looked up (%s)", type(error).__name__)
        return None
