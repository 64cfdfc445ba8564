"""A calibration as a profile: the document that `ramptrace simulate --profile FILE` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from analysis.analyse import RunAnalysis, analyse
from analysis.calibrate import Fit, Parameter, Pick, Sizes, fit_startup, whole
from analysis.calibrate_policy import fit_scaling, fit_serving, settings_of
from analysis.comparable import refuse_incomparable
from analysis.inputs import RunInputs, open_run
from traces.errors import BadInputError

_INTEGERS: Final = frozenset({"slots_per_instance"})
_TABLES: Final = ("startup", "scaling", "serving")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Runs on one machine type, opened and analysed, and the sizes of what their instances fetch."""

    opened: list[RunInputs]
    runs: list[RunAnalysis]
    sizes: Sizes
    image_cache: bool | None


def measure(
    paths: Sequence[Path], *, image_gb: float | None, model_gb: float | None, image_cache: bool | None
) -> Measured:
    """Return runs as a fit needs them; `image_cache` says of a single run whether its image was cached.

    Sizes default to what the runs' own scenario states of the endpoint; without any they are an error.
    """
    opened = [open_run(path) for path in paths]
    runs = [analyse(inputs) for inputs in opened]
    if len(runs) > 1:
        refuse_incomparable(runs)
    sizes = _sizes(opened[-1], image_gb, model_gb)
    return Measured(opened=opened, runs=runs, sizes=sizes, image_cache=image_cache)


def fit_profile(
    paths: Sequence[Path], *, image_gb: float | None, model_gb: float | None, image_cache: bool | None
) -> dict[str, Any]:
    """Return the profile that runs on one machine type tell; see `fit`."""
    return fit(measure(paths, image_gb=image_gb, model_gb=model_gb, image_cache=image_cache))


def fit(measured: Measured, pick: Pick = whole) -> dict[str, Any]:
    """Return the profile that measured runs tell: `emulator_model`, `intervals`, `fitted`."""
    runs = measured.runs
    startup = fit_startup(runs, measured.sizes, image_cache=measured.image_cache, pick=pick)
    settings, lags = fit_scaling(runs[-1])
    lags = {name: pick(lag) for name, lag in lags.items()}
    serving = fit_serving(measured.opened[-1], runs[-1])
    fitted = {"startup": startup.parameters, "scaling": lags, "serving": serving}
    model: dict[str, Any] = {**settings_of(runs), "scaling": dict(settings)}
    for table in _TABLES:
        values = {name: _plain(name, p.value) for name, p in fitted[table].items()}
        model[table] = {**model.get(table, {}), **values}
    model["startup"] |= {"image_cache": startup.image_cache, "provisioning_jitter_s": _jitter(startup)}
    return {
        "emulator_model": model,
        "intervals": {table: {name: msgspec.to_builtins(p) for name, p in fitted[table].items()} for table in _TABLES},
        "fitted": {
            "runs": [str(run.path) for run in runs],
            "emulated": any(run.manifest.emulated for run in runs),
            "assumptions": list(startup.assumptions),
        },
    }


def _plain(name: str, value: float) -> float | int:
    return round(value) if name in _INTEGERS else round(value, 9)


def _jitter(startup: Fit) -> float:
    """Return half the spread of provisioning over the units, where it was measured."""
    found: Parameter = startup.parameters["provisioning_s"]
    return round((found.hi - found.lo) / 2, 6) if found.method == "fitted" else 0.0


def _sizes(inputs: RunInputs, image_gb: float | None, model_gb: float | None) -> Sizes:
    stated = ((inputs.manifest.scenario.get("emulator_model") or {}).get("startup")) or {}
    image = image_gb if image_gb is not None else stated.get("image_gb")
    model = model_gb if model_gb is not None else stated.get("model_gb")
    if not isinstance(image, int | float) or not isinstance(model, int | float):
        raise BadInputError(
            f"{inputs.path}: how large image and model are is not recorded; give --image-gb and --model-gb "
            "(aws ecr describe-images and aws s3 ls --summarize tell)"
        )
    if image < 0 or model < 0:
        raise BadInputError("--image-gb and --model-gb must not be negative")
    return Sizes(image_gb=float(image), model_gb=float(model))
