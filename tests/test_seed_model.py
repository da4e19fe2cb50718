"""The additive model of rows and seeds: against statsmodels, printed tables, scipy, and its own error rate."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import dunnett, studentized_range
from scipy.stats import t as student

from skyfed.report.max_t import critical_value, upper_tail
from skyfed.report.seed_model import LEVEL, ONE_SEED, UNCONNECTED, Comparison, fit, half_interval
from skyfed.rng import stream

VALUES = {
    "a": {0: 50.1, 1: 51.3, 2: 49.6, 3: 50.4},
    "b": {0: 49.0, 1: 50.6, 2: 48.1, 3: 49.9},
    "c": {0: 50.3, 1: 51.0, 2: 49.9, 3: 51.2},
    "d": {0: 47.2, 1: 49.1, 2: 47.5, 3: 47.0},
}
MISSING = {("b", 1), ("d", 3), ("a", 0)}


def without(*cells: tuple[str, int]) -> dict[str, dict[int, float]]:
    return {row: {s: y for s, y in by_seed.items() if (row, s) not in cells} for row, by_seed in VALUES.items()}


def equal(count: int, rho: float = 0.5) -> np.ndarray:
    return np.full((count, count), rho) + (1 - rho) * np.eye(count)


@pytest.mark.parametrize(
    ("cells", "df", "variance", "contrasts"),
    [
        # smf.ols("y ~ C(row) + C(seed)", frame).fit() of statsmodels 0.15.0: df_resid, mse_resid, then
        # .t_test("C(row)[T.b] = 0") and so on: effect and sd
        (
            VALUES,
            9,
            0.25083333333333346,
            {"ba": (-0.95, 0.35414215601459637), "ca": (0.25, 0.35414215601459625), "db": (-1.7, 0.3541421560145964)},
        ),
        (
            without(*MISSING),
            6,
            0.14412878787878727,
            {"ba": (-1.0, 0.32878046004756795), "ca": (0.3284090909, 0.2973931157), "db": (-1.1875, 0.328780460047568)},
        ),
    ],
)
def test_differences_and_their_errors_are_those_of_statsmodels(cells, df, variance, contrasts):
    model = fit(cells)
    assert model.df == df
    assert model.variance == pytest.approx(variance)
    for (row, other), (difference, error) in contrasts.items():
        compared = model.pair(row, other)
        assert compared.difference == pytest.approx(difference)
        bound = studentized_range.isf(0.05, 4, df) / np.sqrt(2)
        assert (compared.high - compared.low) / 2 == pytest.approx(bound * error)
        assert compared.p == pytest.approx(studentized_range.sf(abs(difference) / error * np.sqrt(2), 4, df))


def test_the_adjusted_means_of_complete_cells_are_the_means():
    assert fit(VALUES).means == pytest.approx([np.mean([*by_seed.values()]) for by_seed in VALUES.values()])


def test_two_rows_give_the_paired_t_test():
    """With two rows the additive model, Tukey and Dunnett are all the t test of the differences by seed."""
    some = {row: VALUES[row] for row in "ab"}
    apart = np.array([*VALUES["a"].values()]) - np.array([*VALUES["b"].values()])
    p = 2 * student.sf(apart.mean() / (apart.std(ddof=1) / 2), 3)
    assert fit(some).pair("a", "b").p == pytest.approx(p, rel=1e-6)
    assert fit(some).against("b")["a"].p == pytest.approx(p, rel=1e-6)


@pytest.mark.parametrize(
    ("count", "df", "two_sided", "printed"),
    # Dunnett, Biometrics 20(3), 1964 (two-sided) and J. Am. Stat. Assoc. 50, 1955 (one-sided), 5 %
    [(2, 10, True, 2.57), (4, 20, True, 2.65), (9, 20, True, 2.95), (2, 10, False, 2.15), (4, 20, False, 2.30)],
)
def test_the_points_of_dunnett_s_test_are_the_printed_ones(count, df, two_sided, printed):
    assert critical_value(0.05, equal(count), df, two_sided) == pytest.approx(printed, abs=0.005)


def test_without_seed_effects_dunnett_is_that_of_scipy():
    """scipy's test is for one-way designs: the same statistics and degrees give the same probabilities."""
    groups = stream(0, "dunnett").normal([[0], [1.5], [0.2], [-0.7]], 1.0, (4, 6))
    known = dunnett(*groups[1:], control=groups[0], random_state=np.random.default_rng(0))
    own = [upper_tail(abs(t), equal(3), 4 * 5, two_sided=True) for t in known.statistic]
    assert own == pytest.approx(known.pvalue, abs=2e-3)  # scipy's integral is a random one


def test_unequal_correlations_agree_with_equal_ones_in_the_limit():
    almost = equal(3)
    almost[0, 1] = almost[1, 0] = 0.5 + 1e-6
    for two_sided in (True, False):
        exact, lattice = (upper_tail(2.5, each, 8, two_sided) for each in (equal(3), almost))
        assert lattice == pytest.approx(exact, abs=5e-4)


def test_missing_cells_are_compared_with_the_reference_too():
    complete, some = (fit(cells).against("a") for cells in (VALUES, without(("b", 1))))
    assert [some[row].verdict() for row in "bcd"] == ["no difference shown", "no difference shown", "worse"]
    assert complete["d"].p < some["d"].p < 0.01
    assert some == fit(without(("b", 1))).against("a")  # the same numbers every time


def test_dunnett_is_narrower_than_tukey_and_one_sided_bounds_than_two_sided_ones():
    tukey, against = fit(VALUES).pair("b", "a"), fit(VALUES).against("a")["b"]
    assert tukey.low < against.low < against.at_least < against.difference
    assert tukey.at_least == tukey.low  # all ordered pairs: no narrower


def test_the_error_rate_of_all_pairs_together_is_five_per_cent():
    """No row differs, seeds do: in 5 % of the samples some pair is called different. 2,000 give 5 % +- 0.5 %."""
    rng, wrong, count = stream(0, "family-wise error"), {"tukey": 0, "dunnett": 0}, 2000
    bounds = None
    for _ in range(count):
        y = rng.normal(0, 5, (1, 3)) + rng.normal(0, 1, (4, 3))
        model = fit({str(a): dict(enumerate(row)) for a, row in enumerate(y.tolist())})
        error = np.sqrt(2 * model.variance / 3)
        if bounds is None:  # the same for every sample, and slow to find
            compared = model.pair("0", "1"), model.against("0")["1"]
            bounds = [(each.high - each.difference) / error for each in compared]
        wrong["tukey"] += np.ptp(model.means) / error > bounds[0]
        wrong["dunnett"] += np.abs(model.means - model.means[0]).max() / error > bounds[1]
    assert all(0.03 < each / count < 0.07 for each in wrong.values()), wrong


def test_the_interval_of_a_mean_by_itself():
    assert half_interval([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / np.sqrt(3))
    assert half_interval([1.0]) is None


def test_one_seed_takes_no_part():
    assert fit({"a": {0: 1.0}, "b": {0: 2.0}}).trouble == ONE_SEED
    assert fit({"a": VALUES["a"], "b": {0: 2.0}}).trouble == ONE_SEED
    assert fit({**VALUES, "e": {0: 99.0}}).pair("a", "b") == fit(VALUES).pair("a", "b")


def test_rows_that_share_too_few_seeds_are_not_compared():
    apart = {"a": {0: 1.0, 1: 2.0}, "b": {2: 3.0, 3: 4.0}}
    assert fit(apart).trouble == UNCONNECTED
    assert fit({"a": {0: 1.0, 1: 2.0}, "b": {1: 3.0, 2: 4.0}}).trouble == UNCONNECTED  # no degree of freedom is left
    assert not fit({"a": {0: 1.0, 1: 2.0}, "b": {0: 3.0, 1: 4.5}}).trouble


def test_where_nothing_varies_any_difference_is_real():
    levels = {"a": 1.1, "b": 1.1, "c": 1.3}
    model = fit({row: {seed: level + 0.1 * seed for seed in range(3)} for row, level in levels.items()})
    assert model.variance == 0
    for compared in (model.pair("a", "b"), model.against("b")["a"]):
        assert (compared.p, compared.verdict()) == (1.0, "no difference shown")
    for compared in (model.pair("c", "a"), model.against("a")["c"]):
        assert (compared.p, compared.verdict(), compared.verdict(higher_is_better=False)) == (0.0, "better", "worse")


@pytest.mark.parametrize(
    ("p", "difference", "margin", "higher", "said"),
    [
        (0.01, 1.0, None, True, "better"),
        (0.01, 1.0, None, False, "worse"),
        (0.01, -1.0, None, False, "better"),
        (LEVEL, 1.0, None, True, "no difference shown"),
        (0.5, -0.2, 0.5, True, "not inferior (margin 0.5)"),
        (0.5, -0.2, 0.3, True, "no difference shown"),
        (0.5, 0.2, 0.5, False, "not inferior (margin 0.5)"),
        (0.01, -0.2, 0.5, True, "worse, not inferior (margin 0.5)"),
        (0.01, 0.2, 0.5, True, "better"),
    ],
)
def test_verdicts(p, difference, margin, higher, said):
    compared = Comparison(difference, difference - 0.3, difference + 0.3, p, difference - 0.2, difference + 0.2)
    assert compared.verdict(higher, margin) == said


def test_the_model_loads_neither_torch_nor_matplotlib_nor_scipy_stats():
    script = (
        "import sys, skyfed.report.seed_model, skyfed.report.numbers;"
        "print([name for name in ('torch', 'matplotlib', 'scipy.stats') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == "[]"
