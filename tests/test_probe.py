"""What vehicles measure for Theorem 1, against plain torch in double precision; a round by hand; the command."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from typer.testing import CliRunner

from in_process import undrawn
from learning_cases import Memory, exchanged, onboard_of, run_row, start_of, station_of
from run_cases import pictures, tiny_config
from skyfed.cli import app
from skyfed.jobs import Job, Reply
from skyfed.learning.models import build_model
from skyfed.runs.tables import Table
from skyfed.station import Station
from skyfed.theory.bound import FORMS, TERMS, bound
from skyfed.theory.diagnose import diagnose
from skyfed.theory.estimate import Gathering, fit_dissimilarity, histogram_distance, rounds_of
from skyfed.theory.measure import Partition, among, curvature
from skyfed.types import Arrays

KNOWN = pictures()


# the partition


def sets(seed: int = 0, size: int = 100, new: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(seed).permutation(500)
    return np.sort(drawn[:size]), np.sort(drawn[: size + new]), np.sort(drawn[: size + 2 * new])


def test_a_partition_holds_every_sample_once():
    before, now, after = sets()
    parts = Partition(before, now, after, 16, 0, 0, 500)
    for samples, cut in ((before, parts.before), (now, parts.now), (after, parts.after)):
        assert np.array_equal(np.sort(np.concatenate(cut)), samples)
        assert len(cut) == 103 // 16
        assert min(len(part) for part in cut) > 4


def test_new_samples_change_only_the_mini_batches_they_are_in():
    before, now, after = sets(new=1)
    parts = Partition(before, now, after, 16, 0, 0, 500)
    assert len(among(parts.before, parts.now, False)) == 1
    (new,) = set(now) - set(before)
    assert sum(new in part for part in parts.now) == 1
    same = Partition(before, before, before, 16, 0, 0, 500)
    assert among(same.before, same.now, False) == []


def test_fewer_mini_batches_are_some_of_all():
    before, now, after = sets()
    every, some = (Partition(before, now, after, 16, most, 0, 500) for most in (0, 2))
    assert len(some.now) == 2
    assert {part.tobytes() for part in some.now} <= {part.tobytes() for part in every.now}


def test_a_vehicle_with_next_to_nothing_has_one_mini_batch():
    few = np.array([3, 7])
    parts = Partition(few, few, few, 64, 0, 0, 500)
    assert [part.tolist() for part in parts.now] == [[3, 7]]


# against plain torch


def probe(station: Station, vehicle: int, t: int, now: Arrays, after: Arrays) -> SimpleNamespace:
    """Measure around two models, as the diagnostics of a round do."""
    sent = {**now, **{f"{name} after": array for name, array in after.items()}}
    sets = zip(("before", "samples", "later"), (t - 1, t, t + 1), strict=True)
    data = {name: station.world.observe(vehicle, s) for name, s in sets}
    reply = station.onboard.do(Job("probe", sent, station.label, t, vehicle, data))
    return SimpleNamespace(**reply.words, gradient=reply.arrays["gradient"])


@pytest.fixture(scope="module", params=["cnn", "resnet18"])
def probed(request) -> tuple[Station, SimpleNamespace, Arrays, Arrays]:
    config = tiny_config(
        "theory.every=1", "theory.beta_steps=40", "theory.beta_batches=1000", f"model.name={request.param}"
    )
    station = station_of(config, "afl", onboard=onboard_of(config, KNOWN, torch.float64))
    now = start_of(station)
    rng = np.random.default_rng(0)
    after = {**now, "weights": now["weights"] + 0.01 * rng.standard_normal(len(now["weights"]))}
    return station, probe(station, 1, 1, now, after), now, after


def plain_model(station: Station, weights: np.ndarray) -> nn.Module:
    config, engine = station.onboard.config, station.onboard.engine
    module = build_model(config.model, 4, (3, 8, 8), config.seed).double().train()
    whole = engine.whole(weights)
    flat = np.empty_like(whole)
    flat[engine.layout.plain_places()] = whole
    nn.utils.vector_to_parameters(torch.from_numpy(flat), module.parameters())
    return module


def plain_slopes(station: Station, weights: np.ndarray, parts: list[np.ndarray]) -> tuple[np.ndarray, list, float]:
    """Mean gradient, each mini-batch's, and the mean loss, with nothing but torch."""
    module, layout = plain_model(station, weights), station.onboard.engine.layout
    images = KNOWN.train_images.astype(np.float64)
    mean, std = images.mean((0, 2, 3), keepdims=True), images.std((0, 2, 3), keepdims=True)
    each, losses, counts = [], [], []
    for part in parts:
        x = torch.from_numpy((images[part] - mean) / std)
        loss = functional.cross_entropy(module(x), torch.from_numpy(KNOWN.train_labels[part].astype(np.int64)))
        slopes = torch.autograd.grad(loss, list(module.parameters()))
        flat = torch.cat([slope.reshape(-1) for slope in slopes]).numpy()
        each.append(layout.of_live(flat[layout.plain_places()]))
        losses.append(float(loss.detach()))
        counts.append(len(part))
    share = np.array(counts) / sum(counts)
    return share @ np.array(each), each, float(share @ losses)


def partition_of(station: Station) -> Partition:
    data = [station.world.observe(1, t) for t in (0, 1, 2)]
    return Partition(*data, 8, 0, station.onboard.config.seed, len(KNOWN.train_labels))


def test_gradients_losses_and_their_spread_are_those_of_plain_torch(probed):
    station, found, now, after = probed
    parts = partition_of(station)
    mean, each, loss = plain_slopes(station, now["weights"], parts.now)
    scale = np.linalg.norm(mean)
    assert np.linalg.norm(found.gradient - mean) <= 1e-6 * scale
    assert found.now == pytest.approx(loss, rel=1e-9)
    share = np.array([len(part) for part in parts.now])
    variance = share / share.sum() @ [float(((one - mean) ** 2).sum()) for one in each]
    larger = share.sum() / len(each) / 8
    assert larger >= 1
    assert found.sigma2 == pytest.approx(variance * len(each) / (len(each) - 1) * larger, rel=1e-6)
    old, _, _ = plain_slopes(station, now["weights"], parts.before)
    assert len(parts.before) == len(parts.now)
    assert found.phi == pytest.approx(float(((mean - old) ** 2).sum()), rel=1e-6)
    assert found.phi > 0
    there, _, kept = plain_slopes(station, after["weights"], parts.now)
    assert found.kept == pytest.approx(kept, rel=1e-9)
    assert found.after == pytest.approx(plain_slopes(station, after["weights"], parts.after)[2], rel=1e-9)
    far = np.linalg.norm(after["weights"] - now["weights"])
    assert found.secant == pytest.approx(np.linalg.norm(there - mean) / far, rel=1e-5)


def test_the_curvature_is_the_hessian_s_largest_eigenvalue():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.standard_normal((20, 3, 2, 2))), torch.from_numpy(rng.integers(0, 3, 20))
    flat = nn.utils.parameters_to_vector(module.parameters()).detach()

    def loss(vector: torch.Tensor) -> torch.Tensor:
        parts = torch.split(vector, [p.numel() for p in module.parameters()])
        named = {name: part.view(p.shape) for (name, p), part in zip(module.named_parameters(), parts, strict=True)}
        return functional.cross_entropy(torch.func.functional_call(module, named, (x,)), y)

    hessian = torch.autograd.functional.hessian(loss, flat)
    largest = float(torch.linalg.eigvalsh(hessian).abs().max())
    halves = [(x[:10], y[:10]), (x[10:], y[10:])]
    assert curvature(module, halves, 60, rng, functional.cross_entropy) == pytest.approx(largest, rel=1e-3)
    assert curvature(module, halves, 3, rng, functional.cross_entropy) <= largest * (1 + 1e-9)


def test_the_curvature_found_is_above_what_a_random_step_shows(probed):
    station, found, now, _ = probed
    parts = partition_of(station).now
    rng = np.random.default_rng(3)
    step = rng.standard_normal(len(now["weights"]))
    step *= 1e-5 / np.linalg.norm(step)
    slopes = [plain_slopes(station, now["weights"] + sign * step, parts)[0] for sign in (1, -1)]
    assert np.linalg.norm(slopes[0] - slopes[1]) / 2e-5 <= found.curvature * 1.001


def test_probing_leaves_no_trace():
    station = station_of(tiny_config("theory.every=1"), "2ceoafl")
    state = start_of(station)

    def upload() -> bytes:
        return exchanged(station, 1, state, [0])[1].uploads[0].data

    first = upload()
    probe(station, 0, 1, state, {**state, "weights": state["weights"] + 1})
    assert upload() == first


# a round's row


def probe_of(vehicle: int, gradient: list[float], **known: float) -> Reply:
    values = {
        "sigma2": 1.0,
        "phi": 0.5,
        "now": 2.0,
        "kept": 1.5,
        "after": 1.75,
        "curvature": 3.0,
        "secant": 1.0,
    } | known
    return Reply({"vehicle": vehicle, **values}, arrays={"gradient": np.array(gradient, np.float32)})


def test_a_row_by_hand():
    """Masks 110 and 011: masked gradient (1/4, 1/4*2 + 3/4, 3/4*2); entries 0 and 2 are trained by one vehicle only."""
    found = Gathering(np.array([1.0, 2.0, 3.0], np.float32))
    known = {"epsilon": 0.1, "delta": 0.3, "raw": 0.3, "q": 2.0, "variance": float("nan")}
    found.add(probe_of(0, [1, 2, 4]), np.array([True, True, False]), 0.25, **known)
    found.add(probe_of(1, [8, 1, 2], now=4.0, curvature=5.0), np.array([False, True, True]), 0.75, **known)
    row = found.row(7, 5, 0.1, 0.2)
    assert row["gradient2"] == pytest.approx(0.25**2 + 1.25**2 + 1.5**2)
    assert row["whole_gradient2"] == pytest.approx(6.25**2 + 1.25**2 + 2.5**2)
    assert row["mismatch"] == pytest.approx(6.0**2 + 1.0**2)
    assert row["norm2"] == 14
    assert row["pruned"] == [9.0, 1.0]
    assert row["own2"] == [5.0, 5.0]
    assert (row["now"], row["curvature"], row["round"], row["kappa"]) == (3.5, 5.0, 7, 5)
    assert row["vehicles"] == [0.0, 1.0]


def test_an_entry_that_nobody_trains_is_no_mismatch():
    found = Gathering(np.ones(2, np.float32))
    known = {"epsilon": 0.0, "delta": 0.5, "raw": 1.0, "q": 0.0, "variance": float("nan")}
    found.add(probe_of(0, [3, 4]), np.array([True, False]), 1.0, **known)
    assert found.row(0, 1, 0.1, 0.1)["mismatch"] == 0


def test_histograms_far_and_near():
    one, other = np.array([10, 0, 0]), np.array([0, 5, 5])
    assert histogram_distance(one, one * 3) == 0
    assert histogram_distance(one, other) == 1
    assert histogram_distance(one, np.array([5, 5, 0])) == 0.5


def test_the_fit_holds_everywhere_and_is_tight_somewhere():
    rng = np.random.default_rng(1)
    rows = [
        {"gradient2": x, "epsilon": eps.tolist(), "own2": (1.5 * x + 2 * eps * rng.uniform(0.5, 1, 4)).tolist()}
        for x, eps in ((rng.uniform(0.1, 2), rng.uniform(0, 1, 4)) for _ in range(8))
    ]
    rho1, rho2 = fit_dissimilarity(rows)
    slack = [
        rho1 * row["gradient2"] + rho2 * eps - own
        for row in rows
        for eps, own in zip(row["epsilon"], row["own2"], strict=True)
    ]
    assert min(slack) >= -1e-9
    assert min(slack) <= 1e-9
    assert rho1 >= 1
    assert rho2 >= 0


def test_vehicles_alike_need_no_dissimilarity():
    assert fit_dissimilarity([{"gradient2": 2.0, "epsilon": [0.5], "own2": [1.0]}]) == (1.0, 0.0)
    assert fit_dissimilarity([{"gradient2": 0.0, "epsilon": [0.0], "own2": [0.0]}]) == (1.0, 0.0)
    assert fit_dissimilarity([{"gradient2": 0.0, "epsilon": [0.0], "own2": [1.0]}])[0] == np.inf


# a whole run


def trained(algorithm: str, *overrides: str) -> Memory:
    return run_row(station_of(tiny_config("theory.every=2", *overrides), algorithm))


def test_rows_come_in_the_rounds_asked_for():
    found = [report.theory for report in trained("2ceoafl").reports]
    assert [row is not None for row in found] == [True, False, True]
    assert found[2]["round"] == 2
    assert len(found[0]["sigma2"]) == 3
    assert found[0]["phi"] == [0.0, 0.0, 0.0]  # nothing before the first round
    assert all(report.theory is None for report in trained("2ceoafl", "theory.every=0").reports)
    assert all(report.theory is None for report in trained("sgd").reports)


@pytest.mark.parametrize("rate", [0.001, 0.0003])
def test_with_rates_that_the_theorem_allows_a_run_stays_below_the_corrected_bound(rate):
    overrides = (f"train.eta={rate}", f"train.eta_local={rate}", "theory.every=1", "theory.beta_steps=20")
    rows = [report.theory for report in trained("afl", *overrides).reports]
    for row, one in zip(rows, rounds_of(rows), strict=True):
        assert bound(one).valid
        assert row["gradient2"] <= bound(one).total


def test_assumption_5_is_checked_at_every_upload():
    for report in trained("afl-prune").reports:
        for upload in report.uploads:
            assert 0 < upload.facts["pruned_share"] < upload.facts["delta"]
    for report in trained("afl").reports:
        assert all(upload.facts["pruned_share"] == 0 for upload in report.uploads)


def test_the_quantiser_s_measured_variance_is_around_what_its_bound_allows():
    reports = trained("afl-quant").reports
    first, second = ([upload.facts for upload in report.uploads] for report in reports[:2])
    assert all(0 < facts["quantiser_variance"] < 2 * facts["quantiser_bound"] for facts in first)
    assert all(facts.get("quantiser_variance") is None for facts in second)  # not a round that is measured


def cli(*words: str) -> object:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("bound") / "run"
    more = [
        "rounds=4",
        "vehicles=2",
        "theory.every=2",
        'algorithms=["sgd","afl","2ceoafl"]',
        "workers=2",
        "theory.beta_steps=2",
        "flight.method=greedy",
    ]
    sets = [word for setting in more for word in ("--set", setting)]
    assert cli("run", "smoke", "--plain", "--out", str(place), *sets).exit_code == 0
    return place


def test_the_command_prints_terms_conditions_and_advice(folder):
    found = cli("bound", str(folder))
    assert found.exit_code == 0, found.output
    for text in (*TERMS, "fails in", "largest learning rate", "assumption 5", "measured gradient"):
        assert text in found.output
    for name in ("afl", "2ceoafl"):
        assert (folder / "figures" / f"bound-{name}.png").stat().st_size > 10_000
        assert (folder / "figures" / f"bound-{name}.pdf").exists()


def test_the_records_are_rounds_forms_terms_and_values(folder):
    records = json.loads(cli("bound", str(folder), "--json").output)
    assert {record["algorithm"] for record in records} == {"afl", "2ceoafl"}
    assert {record["form"] for record in records} == {*FORMS, "measured"}
    assert {record["round"] for record in records} == {0, 2}
    rows = Table(folder / "2ceoafl", "theory").rows()
    one = diagnose("2ceoafl", rows, Table(folder / "2ceoafl", "uplink").rows())
    wanted = one.bounds["printed"][1].terms["pruning"]
    key = {"algorithm": "2ceoafl", "round": 2, "form": "printed", "term": "pruning"}
    (found,) = [record["value"] for record in records if record.items() >= key.items()]
    assert found == pytest.approx(wanted)


def test_workers_measure_what_one_process_does(folder, tmp_path, monkeypatch):
    """Rows but for none: every number is the same bit for bit."""
    from skyfed.runs.folder import RunFolder

    undrawn(monkeypatch)
    config = RunFolder(folder).read_config()
    text = config.model_copy(update={"workers": 1}).to_toml()
    (tmp_path / "one.toml").write_text(text)
    assert cli("run", str(tmp_path / "one.toml"), "--plain", "--out", str(tmp_path / "one")).exit_code == 0
    for name in ("afl", "2ceoafl"):
        assert Table(folder / name, "theory").rows() == Table(tmp_path / "one" / name, "theory").rows()


@pytest.mark.parametrize("what", ["nothing", "a run without"])
def test_a_folder_without_the_constants_is_refused_in_a_line(what, tmp_path):
    from skyfed.errors import BadInputError
    from skyfed.runs.folder import RunFolder

    if what == "a run without":
        with RunFolder.claim(tmp_path, tiny_config(), []):
            pass

    found = cli("bound", str(tmp_path))
    assert isinstance(found.exception, BadInputError)
    assert "\n" not in str(found.exception)
