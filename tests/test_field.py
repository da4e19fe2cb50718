"""The data field: the mixture (Eq. 1), psi (Eq. 2), a vehicle's estimate, and what a mission makes of them."""

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skyfed.config import Config, config_from_tree
from skyfed.errors import BadInputError
from skyfed.field import FieldSettings, Mixture, build_field, estimation_error
from skyfed.field.mixture import draw_mixture, fit_gmm, fit_moments
from skyfed.field.psi import basis_curves, class_distribution
from skyfed.rng import stream
from skyfed.world import footprint_side, initial_counts
from skyfed.world.mission import Mission, prepare_mission


def field_settings(**values: object) -> FieldSettings:
    return config_from_tree({"field": values}).field


def mission_of(tree: dict[str, object]) -> tuple[Config, Mission]:
    config = config_from_tree(tree)
    return config, prepare_mission(
        config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed
    )


# Eq. 1: where data is


def test_samples_have_the_counts_means_and_deviations_of_their_classes():
    mixture = Mixture(np.array([[100.0, -50.0], [-300.0, 200.0]]), np.array([30.0, 60.0]), np.array([0.5, 0.5]))
    counts = np.array([20_000, 40_000])
    positions, labels = mixture.sample(counts, stream(0, "test"))
    assert np.bincount(labels).tolist() == counts.tolist()
    for c, (centre, deviation) in enumerate(zip(mixture.centres, mixture.deviations, strict=True)):
        mine = positions[labels == c]
        assert np.abs(mine.mean(axis=0) - centre).max() < 5 * deviation / math.sqrt(counts[c])
        assert np.cov(mine.T) == pytest.approx(deviation**2 * np.eye(2), abs=0.04 * deviation**2)


def test_a_class_without_samples_draws_none():
    mixture = Mixture(np.zeros((3, 2)), np.ones(3), np.full(3, 1 / 3))
    positions, labels = mixture.sample(np.array([2, 0, 1]), stream(0, "test"))
    assert labels.tolist() == [0, 0, 2]
    assert positions.shape == (3, 2)


@given(st.integers(0, 2**32), st.sampled_from([1.0, 0.5]))
@settings(max_examples=40, deadline=None)
def test_discs_of_the_default_geometry_lie_inside_the_region_and_apart(seed, zeta):
    mixture = draw_mixture(FieldSettings(zeta=zeta), np.ones(10), stream(seed, "test"))
    radii = zeta * mixture.deviations
    assert ((mixture.deviations >= 30) & (mixture.deviations <= 60)).all()
    assert (np.abs(mixture.centres) + radii[:, None] <= 500).all()
    for a, b in combinations(range(10), 2):
        assert math.dist(mixture.centres[a], mixture.centres[b]) >= radii[a] + radii[b]


def test_centres_spread_over_the_whole_region():
    settings_ = FieldSettings()
    centres = np.concatenate([m.centres for m in build_field(settings_, 60, 2, 0).mixtures])
    assert np.abs(centres.mean(axis=0)).max() < 60  # uniform over 900 m: 11 m standard error
    assert centres.std(axis=0) == pytest.approx(900 / math.sqrt(12), rel=0.08)


def test_a_crowded_region_still_gets_all_its_discs():
    mixture = draw_mixture(FieldSettings(classes=12, region=(100.0, 60.0)), np.ones(12), stream(0, "test"))
    assert np.isfinite(mixture.centres).all()
    assert (np.abs(mixture.centres) <= [50.0, 30.0]).all()


def test_weights_are_normalised():
    mixture = draw_mixture(FieldSettings(classes=3), np.array([1.0, 1.0, 2.0]), stream(0, "test"))
    assert mixture.weights.tolist() == [0.25, 0.25, 0.5]


# Eq. 2: when data is


def test_psi_of_two_classes_by_hand():
    projection = np.array([[math.log(2), math.log(3)], [0.0, 0.0]])
    curves = np.array([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    share = class_distribution(projection, curves)[0]
    assert share == pytest.approx([1 / 2, 2 / 3, 3 / 4, 6 / 7])  # e^score : 1 with e^score = 1, 2, 3, 6


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(3)), elements=st.floats(-1e6, 1e6)),
    hnp.arrays(np.float64, st.tuples(st.just(3), st.integers(1, 6)), elements=st.floats(-1e6, 1e6)),
)
def test_psi_is_a_distribution_in_every_round_however_large_the_scores(projection, curves):
    psi = class_distribution(projection, curves)
    assert psi.shape == (len(projection), curves.shape[1])
    assert (psi >= 0).all()
    assert psi.sum(axis=0) == pytest.approx(1.0)


def test_psi_does_not_change_its_arguments():
    projection, curves = np.ones((2, 1)), np.ones((1, 3))
    class_distribution(projection, curves)
    assert (projection == 1).all()
    assert (curves == 1).all()


def test_the_default_bases_are_the_papers_four_at_t_by_rounds():
    rounds = 8
    t = np.arange(rounds)
    paper = [np.sin(2 * np.pi * t / 8), np.cos(5 * np.pi * t / 8), np.sin(5 * np.pi * t / 8), np.cos(2 * np.pi * t / 8)]
    curves = basis_curves(FieldSettings().bases, rounds)
    assert curves == pytest.approx(np.stack(paper), abs=1e-12)
    root = math.sqrt(0.5)
    assert curves[:, 2] == pytest.approx([1, -root, -root, 0], abs=1e-12)  # phase 1/4: angles 90 and 225 degrees


@pytest.mark.parametrize(
    ("basis", "values"),
    [
        ("sin", [0, 1, 0, -1]),
        ("cos", [1, 0, -1, 0]),
        ("sin:0.5", [0, math.sqrt(0.5), 1, math.sqrt(0.5)]),
        ("const", [1, 1, 1, 1]),
        ("const:-2.5", [-2.5, -2.5, -2.5, -2.5]),
        ("ramp", [0, 0.25, 0.5, 0.75]),
        ("ramp:2", [0, 0.5, 1, 1.5]),
        ("step", [0, 0, 1, 1]),
        ("step:0.25", [0, 1, 1, 1]),
        ("bump:0.5:0.25", [math.exp(-2), math.exp(-0.5), 1, math.exp(-0.5)]),
    ],
)
def test_each_basis_at_phases_0_to_three_quarters(basis, values):
    assert basis_curves([basis], 4)[0] == pytest.approx(values, abs=1e-12)


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "own_bases_for_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "curves.py").write_text(
        "def square(phase):\n    return phase ** 2\n"
        "def short(phase):\n    return phase[:-1]\n"
        "def number(phase):\n    return 1.0\n"
        "def text(phase):\n    return 'abc'\n"
        "def hole(phase):\n    return phase * float('nan')\n"
        "def fails(phase):\n    raise ArithmeticError('no')\n"
        "constant = 3\n"
    )
    (package / "broken.py").write_text("this is not Python\n")
    (package / "raises.py").write_text("raise RuntimeError('at import')\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("own_module")
def test_a_basis_of_ones_own_by_import_path():
    chosen = field_settings(bases=["const", "own_bases_for_test.curves:square"])
    assert basis_curves(chosen.bases, 4)[1].tolist() == [0, 1 / 16, 1 / 4, 9 / 16]


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    "basis",
    [
        "tan:1", "sin:x", "sin:1:2", "sin:", "", ":", "const:nan", "const:inf", "ramp:inf", "sin:1e308", "step:nan",
        "bump:0.5:0", "bump:0.5:0.1:3", "no.such.module:curve", "math:sin:1", ".relative:curve", "..:x", "os.path:",
        "own_bases_for_test.curves:nothing", "own_bases_for_test.broken:x", "own_bases_for_test.raises:x",
        "own_bases_for_test.curves:constant", "own_bases_for_test.curves:fails", "own_bases_for_test.curves:short",
        "own_bases_for_test.curves:text", "own_bases_for_test.curves:number", "own_bases_for_test.curves:hole",
    ],
)  # fmt: skip
def test_a_bad_basis_is_refused_in_one_line(basis):
    with pytest.raises(BadInputError, match=r"field\.bases") as refusal:
        basis_curves(field_settings(bases=["const", basis]).bases, 4)
    assert "\n" not in str(refusal.value)


# the field of a fleet


@pytest.mark.parametrize(
    ("vehicles", "classes", "rounds", "bases"),
    [(1, 1, 1, 1), (1, 1, 7, 4), (3, 5, 1, 2), (2, 40, 3, 1), (4, 2, 9, 11), (2, 3, 1000, 3)],
)
def test_any_number_of_vehicles_classes_rounds_and_bases(vehicles, classes, rounds, bases):
    chosen = field_settings(classes=classes, bases=[f"sin:{k + 1}" for k in range(bases)])
    field = build_field(chosen, vehicles, rounds, seed=0)
    assert field.psi.shape == (vehicles, classes, rounds)
    assert field.psi.sum(axis=1) == pytest.approx(1.0)
    assert len(field.mixtures) == vehicles
    for mixture in field.mixtures:
        assert (mixture.centres.shape, mixture.deviations.shape) == ((classes, 2), (classes,))
        assert mixture.weights.sum() == pytest.approx(1.0)


def test_a_field_follows_from_its_seed_and_a_vehicle_does_not_see_the_size_of_the_fleet():
    small, large = (build_field(FieldSettings(), n, 6, seed=3) for n in (2, 4))
    other = build_field(FieldSettings(), 2, 6, seed=4)
    assert np.array_equal(small.psi, large.psi[:2])
    for u in range(2):
        assert np.array_equal(small.mixtures[u].centres, large.mixtures[u].centres)
        assert not np.array_equal(small.mixtures[u].centres, other.mixtures[u].centres)
    assert not np.array_equal(small.psi[0], small.psi[1])
    assert not np.array_equal(small.mixtures[0].centres, small.mixtures[1].centres)
    assert not np.array_equal(small.psi, other.psi)


def test_a_number_scales_the_random_projection():
    once, twice, off = (build_field(field_settings(projection=k), 2, 5, 0).psi for k in ("random", 2, 0.0))
    odds = [np.log(psi[:, 1:] / psi[:, :1]) for psi in (once, twice)]
    assert odds[1] == pytest.approx(2 * odds[0])
    assert off == pytest.approx(1 / 10)


def test_a_given_projection_is_shared_or_one_a_vehicle():
    shared = [[math.log(3)], [0.0]]
    each = [shared, [[0.0], [math.log(4)]]]
    base = {"classes": 2, "bases": ["const"]}
    psi = build_field(field_settings(projection=shared, **base), 2, 3, 0).psi
    assert psi[:, 0] == pytest.approx(3 / 4)
    psi = build_field(field_settings(projection=each, **base), 2, 3, 0).psi
    assert psi[0] == pytest.approx(np.array([[3 / 4] * 3, [1 / 4] * 3]))
    assert psi[1] == pytest.approx(np.array([[1 / 5] * 3, [4 / 5] * 3]))


@pytest.mark.parametrize(
    "projection",
    [
        [],
        [[]],
        [[1.0, 2.0]],
        [[1.0], [2.0], [3.0]],
        [[1.0], [2.0, 3.0]],
        [[[1.0], [2.0]]],
        [[[1.0], [2.0]], [[1.0]]],
    ],
)
def test_a_projection_of_another_shape_is_refused(projection):
    with pytest.raises(BadInputError, match=r"field\.projection"):
        build_field(field_settings(projection=projection, classes=2, bases=["const"]), 3, 4, 0)


# a vehicle's estimate


def test_moments_by_hand_with_a_class_of_one_sample():
    positions = np.array([[0, 0], [4, 0], [10, 10], [10, 14], [10, 18], [-7, 3]], np.float64)
    fit = fit_moments(positions, np.array([0, 0, 1, 1, 1, 2]), 3)
    assert fit.centres.tolist() == [[2, 0], [10, 14], [-7, 3]]
    # squared distances 8 over 2(2-1); 32 over 2(3-1); and pooled 40 over 2(1+2) for the class of one
    assert fit.deviations == pytest.approx(np.sqrt([4.0, 8.0, 40 / 6]))
    assert fit.weights == pytest.approx([2 / 6, 3 / 6, 1 / 6])


def test_moments_do_not_depend_on_the_order_of_samples():
    rng = stream(0, "test")
    positions, labels = rng.normal(size=(30, 2)), np.arange(30) % 3
    order = rng.permutation(30)
    one, other = fit_moments(positions, labels, 3), fit_moments(positions[order], labels[order], 3)
    assert one.centres == pytest.approx(other.centres)
    assert one.deviations == pytest.approx(other.deviations)


@pytest.mark.parametrize("fit", [fit_moments, fit_gmm])
def test_a_class_without_a_sample_cannot_be_estimated(fit):
    with pytest.raises(ValueError, match="class 1 has no sample"):
        fit(np.zeros((3, 2)), np.array([0, 2, 2]), 3)


def test_fifty_samples_at_45_metres_put_a_centre_some_six_metres_off_an_axis():
    classes, count, deviation = 3000, 50, 45.0
    truth = Mixture(np.zeros((classes, 2)), np.full(classes, deviation), np.full(classes, 1 / classes))
    fit = fit_moments(*truth.sample(np.full(classes, count), stream(0, "test")), classes)
    error = estimation_error(fit, truth)
    per_axis = deviation / math.sqrt(count)  # 6.36 m
    assert math.sqrt((fit.centres**2).mean()) == pytest.approx(per_axis, rel=0.03)
    assert error.mean() == pytest.approx(per_axis * math.sqrt(math.pi / 2), rel=0.03)  # Rayleigh: 7.98 m
    # the spread of a pooled deviation: lambda / (2 sqrt(n-1)), its mean size sqrt(2/pi) of that
    off = np.abs(fit.deviations - truth.deviations).mean()
    assert off == pytest.approx(deviation / (2 * math.sqrt(count - 1)) * math.sqrt(2 / math.pi), rel=0.05)


def test_gmm_is_the_moments_with_n_instead_of_n_minus_one_where_clusters_are_far_apart():
    truth = Mixture(np.array([[0.0, 0.0], [1e4, 0.0], [0.0, 1e4]]), np.array([30.0, 45.0, 60.0]), np.full(3, 1 / 3))
    samples = truth.sample(np.array([20, 30, 50]), stream(0, "test"))
    moments, gmm = fit_moments(*samples, 3), fit_gmm(*samples, 3)
    assert gmm.centres == pytest.approx(moments.centres, abs=1e-6)
    assert gmm.deviations == pytest.approx(moments.deviations * np.sqrt([19 / 20, 29 / 30, 49 / 50]), rel=1e-6)
    assert gmm.weights == pytest.approx([0.2, 0.3, 0.5])


def test_gmm_stays_close_to_moments_in_the_default_geometry():
    _, moments = mission_of({"vehicles": 3, "rounds": 20})
    _, gmm = mission_of({"vehicles": 3, "rounds": 20, "field": {"estimate": "gmm"}})
    apart = [math.dist(a, b) for m, g in zip(moments.estimates, gmm.estimates, strict=True)
             for a, b in zip(m.centres, g.centres, strict=True)]  # fmt: skip
    assert 0 < np.mean(apart) < 10
    assert max(apart) < 60


def test_gmm_of_one_sample_a_class_takes_the_samples_themselves():
    places = np.array([[0.0, 0.0], [50.0, 0.0]])
    assert np.array_equal(fit_gmm(places, np.array([0, 1]), 2).centres, places)


def test_estimation_error_by_hand():
    truth = Mixture(np.array([[0.0, 0.0], [10.0, 10.0]]), np.array([30.0, 40.0]), np.full(2, 0.5))
    guess = Mixture(np.array([[3.0, 4.0], [10.0, 9.0]]), np.array([28.0, 45.0]), np.full(2, 0.5))
    assert estimation_error(guess, truth).tolist() == [5.0, 1.0]
    assert estimation_error(truth, truth).tolist() == [0.0, 0.0]


# the mission


def test_plans_are_made_on_the_estimate_by_default_and_on_the_truth_when_asked():
    tree = {"vehicles": 2, "rounds": 6, "field": {"zeta": 0.5}}
    _, believed = mission_of(tree)
    _, told = mission_of({**tree, "flight": {"field": "true", "vmax": 80.0}})
    for u in range(2):
        estimate, truth = believed.estimates[u], believed.field.mixtures[u]
        assert np.array_equal(believed.problems[u].centres, estimate.centres)
        assert believed.problems[u].radii == pytest.approx(0.5 * estimate.deviations)
        assert not np.array_equal(estimate.centres, truth.centres)
        assert np.array_equal(told.problems[u].centres, truth.centres)
        assert told.problems[u].radii == pytest.approx(0.5 * truth.deviations)
        assert np.array_equal(believed.errors[u], estimation_error(estimate, truth))
    assert (believed.problems[0].vmax, told.problems[0].vmax) == (math.inf, 80.0)


def test_a_larger_initial_set_gives_a_better_estimate():
    few, many = (mission_of({"vehicles": 4, "rounds": 6, "sensing": {"initial": n}})[1] for n in (64, 64 * 100))
    assert np.mean(few.errors) > 5 * np.mean(many.errors)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 5), (1, 6, 1), (3, 4, 2)])
def test_missions_of_every_small_shape(shape):
    vehicles, classes, rounds = shape
    _, mission = mission_of({"vehicles": vehicles, "rounds": rounds, "field": {"classes": classes}})
    assert [problem.psi.shape for problem in mission.problems] == [(classes, rounds)] * vehicles


def test_an_initial_set_too_small_to_estimate_a_radius_is_refused_by_its_name():
    with pytest.raises(BadInputError, match=r"sensing\.initial"):
        mission_of({"vehicles": 1, "rounds": 3, "sensing": {"initial": 1}})


def test_initial_counts_by_hand():
    psi = np.array([[0.5, 0.3], [0.3, 0.3], [0.2, 0.4]])
    assert initial_counts(psi, 512).tolist() == [205, 154, 154]  # ceil of 204.8, 153.6, 153.6
    assert initial_counts(np.full((4, 1), 0.25), 512).tolist() == [128] * 4  # a whole number is not rounded up


def test_footprint_by_hand():
    assert footprint_side(50.0, 45.0) == pytest.approx(100.0)
    assert footprint_side(50.0, 30.0) == pytest.approx(100 / math.sqrt(3))


def test_a_basis_of_ones_own_is_imported_when_it_is_needed_and_not_before():
    settings = FieldSettings(bases=["nowhere.at.all:curve"])
    with pytest.raises(BadInputError, match=r"field.bases: 'nowhere.at.all:curve'.*No module named 'nowhere'|nowhere"):
        basis_curves(settings.bases, 5)
