"""How well a scale-out of a SageMaker endpoint will be seen, from what its sources read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadgen.collect.platform import Finding, PhaseView
from loadgen.collect.scaling_view import FINE_S, alarms, detection, scaling


def findings(snapshots: Mapping[str, Any]) -> list[Finding]:
    """Return what is set up well and what is not: scaling, alarms, metrics, caches, routing."""
    facts = snapshots.get("endpoint-facts") or {}
    return [
        *scaling(snapshots, "the endpoint"),
        *alarms(snapshots),
        *_metrics(facts),
        *_start(facts),
    ]


def phases(snapshots: Mapping[str, Any]) -> list[PhaseView]:
    """Return how well each phase will be seen, in causal order."""
    facts = snapshots.get("endpoint-facts") or {}
    detailed, enhanced = facts.get("detailed_observability"), facts.get("enhanced_metrics")
    no_detail = None if detailed else "create the endpoint configuration anew with EnableDetailedObservability"
    by_container = facts.get("model_download") == "container"
    return [
        *detection(snapshots, "scale on ConcurrentRequestsPerModel or PerCopy, which is published every 10 s"),
        PhaseView(
            "provisioning",
            "bounded",
            "first sign of an instance" + (", its first host metric" if enhanced else ""),
            None if enhanced else "enhanced metrics with a publish frequency of 10 s bound it by the first host metric",
        ),
        PhaseView(
            "pull",
            "bounded",
            "no field tells it; what the decision, the download and the container's start leave",
            "compare a run with the image cached and one without",
        ),
        PhaseView(
            "download",
            "measured" if detailed or by_container else "bounded",
            "lines in the container's log" if by_container else "model_download_time" if detailed else "bounds only",
            None if by_container else no_detail,
        ),
        PhaseView(
            "start",
            "measured",
            "first line of the container's log" + (", container_start_time" if detailed else ""),
            no_detail,
        ),
        PhaseView("weights", "measured" if detailed else "bounded", "engine's log, gpu_load_time", no_detail),
        PhaseView("registration", "bounded", "instance count and the activity's end"),
        PhaseView(
            "recovery",
            "measured" if enhanced else "bounded",
            "responses of the replay" + (", first invocation by instance" if enhanced else ""),
            None if enhanced else "enhanced metrics tell the first request of each instance; or let responses name it",
        ),
    ]


def _metrics(facts: Mapping[str, Any]) -> list[Finding]:
    if not facts:
        return [Finding("endpoint configuration", "unknown", "it could not be read")]
    detailed: bool | None = facts.get("detailed_observability")
    status: Any = "ok" if detailed else "unknown" if detailed is None else "warn"
    text = "cannot be told" if detailed is None else "on" if detailed else "off"
    advice = "a new endpoint configuration has it on; without it download and load are only bounded"
    found = [Finding("detailed observability", status, text, None if detailed else advice)]
    publish_s = facts.get("metric_publish_s", 60)
    if facts.get("enhanced_metrics"):
        fine = publish_s <= FINE_S
        found.append(
            Finding(
                "enhanced metrics",
                "ok" if fine else "warn",
                f"every {publish_s} s",
                None if fine else "publish every 10 s",
            )
        )
    else:
        found.append(Finding("enhanced metrics", "warn", "off", "they tell each instance's first request"))
    return found


def _start(facts: Mapping[str, Any]) -> list[Finding]:
    if not facts:
        return []
    kind = facts.get("instance_type")
    expected = facts.get("image_caching_expected")
    caching = "whether images are cached cannot be told: the configuration is older than the feature"
    if expected is not None:
        caching = (
            "an accelerator type: the image is expected to be cached"
            if expected
            else "no accelerator type: images are not cached"
        )
    found = [
        Finding(
            "image caching", "ok" if expected else "warn" if expected is False else "unknown", f"{kind}: {caching}"
        ),
        Finding("configuration era", "ok", f"{facts.get('config_era')}; compare runs of one era only"),
        Finding("model download", "ok", f"by the {facts.get('model_download')}"),
        Finding("routing", "ok", str(facts.get("routing") or "RANDOM")),
    ]
    cache = facts.get("data_cache")
    if cache is not None:
        advice = None if cache else "EnableCaching keeps model and image on an instance for further copies"
        found.append(Finding("data cache", "ok" if cache else "warn", "on" if cache else "off", advice))
    return found
