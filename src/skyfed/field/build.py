"""From settings to the true field of every vehicle."""

from dataclasses import dataclass

import numpy as np

from skyfed.errors import BadInputError
from skyfed.field.mixture import Mixture, draw_mixture
from skyfed.field.psi import basis_curves, class_distribution
from skyfed.field.settings import FieldSettings
from skyfed.field.survey import read_survey
from skyfed.rng import stream
from skyfed.types import Floats


@dataclass(frozen=True)
class Field:
    """What is true for the whole fleet: one mixture per vehicle and psi (U, C, T)."""

    mixtures: tuple[Mixture, ...]
    psi: Floats


def build_field(settings: FieldSettings, vehicles: int, rounds: int, seed: int) -> Field:
    """Draw every vehicle's mixture and psi, or take them from the user's files."""
    files = [settings.file] if isinstance(settings.file, str) else settings.file or []
    survey = read_survey(files, vehicles, settings.classes, rounds)
    if settings.shared:
        for key, array in survey.items():
            _refuse_different(f"field.file: {key}", array)
    mixtures = tuple(_mixture(settings, survey, u, seed) for u in _drawn(settings, vehicles))
    if settings.shared:
        mixtures *= vehicles
    if "psi" in survey:
        return Field(mixtures, survey["psi"])
    curves = basis_curves(settings.bases, rounds)
    projections = _projections(settings, vehicles, seed)
    return Field(mixtures, np.stack([class_distribution(projection, curves) for projection in projections]))


def _drawn(settings: FieldSettings, vehicles: int) -> range:
    """Return the vehicles whose fields are drawn; a shared field is that of vehicle 0."""
    return range(1 if settings.shared else vehicles)


def _refuse_different(what: str, array: Floats) -> None:
    if (array != array[:1]).any():
        raise BadInputError(f"{what} differs from vehicle to vehicle; allowed with field.shared = true: one for all")


def _mixture(settings: FieldSettings, survey: dict[str, Floats], vehicle: int, seed: int) -> Mixture:
    weights = np.ones(settings.classes) if isinstance(settings.weights, str) else np.asarray(settings.weights)
    if "weights" in survey:
        weights = survey["weights"][vehicle]
    if "centres" in survey:
        return Mixture(survey["centres"][vehicle], survey["deviations"][vehicle], weights / weights.sum())
    return draw_mixture(settings, weights, stream(seed, "mixture", vehicle=vehicle))


def _projections(settings: FieldSettings, vehicles: int, seed: int) -> Floats:
    shape = (settings.classes, len(settings.bases))
    given = settings.projection
    if isinstance(given, list):
        try:
            matrix = np.asarray(given, np.float64)
        except ValueError:
            raise BadInputError("field.projection: rows differ in length") from None
        if matrix.shape not in (shape, (vehicles, *shape)):
            raise BadInputError(
                f"field.projection has shape {matrix.shape}; allowed: {shape} (classes, bases) or {(vehicles, *shape)}"
            )
        projections = np.broadcast_to(matrix, (vehicles, *shape))
        if settings.shared:
            _refuse_different("field.projection", projections)
        return projections
    scale = 1.0 if given == "random" else float(given)
    draws = [stream(seed, "projection", vehicle=u).standard_normal(shape) for u in _drawn(settings, vehicles)]
    with np.errstate(over="ignore"):
        return scale * np.broadcast_to(np.stack(draws), (vehicles, *shape))
