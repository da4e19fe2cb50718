"""A field of the user's own from CSV and NPZ: what is read, and how each kind of damage is refused."""

import contextlib
import io
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skyfed.config import config_from_tree
from skyfed.errors import BadInputError
from skyfed.field import build_field
from skyfed.field.survey import read_survey

U, C, T = 2, 2, 3  # the fleet that all files here are for

CLUSTERS = "class,x,y,deviation\n0,10,20,30\n1,-40,50,60\n"
SAMPLES = "class,x,y\n0,0,0\n0,4,0\n1,10,10\n1,10,14\n1,10,18\n"
PSI = "round,class,psi\n" + "".join(f"{t},{c},{1 + 2 * c}\n" for t in range(T) for c in range(C))


def read(path: Path | str) -> dict[str, np.ndarray]:
    return read_survey([str(path)], U, C, T)


def csv(tmp_path: Path, text: str | bytes, name: str = "survey.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def npz(tmp_path: Path, **arrays: object) -> Path:
    path = tmp_path / "survey.npz"
    np.savez(path, **arrays)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(BadInputError) as caught:
        read(path)
    message = str(caught.value)
    assert path.name in message
    assert message.startswith("field.file = ")
    assert "\n" not in message
    return message


# what is read


def test_clusters_without_a_vehicle_column_are_shared_by_all(tmp_path):
    found = read(csv(tmp_path, CLUSTERS))
    assert found["centres"].tolist() == [[[10, 20], [-40, 50]]] * U
    assert found["deviations"].tolist() == [[30, 60]] * U
    assert found.keys() == {"centres", "deviations"}


def test_clusters_with_a_vehicle_column_and_weights(tmp_path):
    rows = ["1,1,7,8,50,9", "0,0,1,2,30,1", "0,1,3,4,40,3", "1,0,5,6,60,1"]  # in any order
    found = read(csv(tmp_path, "vehicle,class,x,y,deviation,weight\n" + "\n".join(rows)))
    assert found["centres"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    assert found["deviations"].tolist() == [[30, 40], [60, 50]]
    assert found["weights"].tolist() == [[0.25, 0.75], [0.1, 0.9]]


def test_samples_without_a_vehicle_column_are_fitted_by_moments(tmp_path):
    found = read(csv(tmp_path, SAMPLES))
    assert found["centres"].tolist() == [[[2, 0], [10, 14]]] * U
    assert found["deviations"] == pytest.approx(np.sqrt([[4, 8]] * U))
    assert found["weights"] == pytest.approx(np.array([[0.4, 0.6]] * U))


def test_samples_with_a_vehicle_column_are_fitted_vehicle_by_vehicle(tmp_path):
    rows = "".join(f"{u},{c},{100 * u + x},{c}\n" for u in range(U) for c in range(C) for x in (-1, 1))
    found = read(csv(tmp_path, "vehicle,class,x,y\n" + rows))
    assert found["centres"].tolist() == [[[0, 0], [0, 1]], [[100, 0], [100, 1]]]
    assert found["deviations"] == pytest.approx(1.0)  # two samples 1 m off the centre: 2 over 2(2-1)


def test_psi_without_a_vehicle_column_is_shared_and_normalised(tmp_path):
    found = read(csv(tmp_path, PSI))
    assert found["psi"].tolist() == [[[0.25] * T, [0.75] * T]] * U


def test_psi_with_a_vehicle_column_may_hold_zeros(tmp_path):
    rows = "".join(f"{u},{t},{c},{int(c == u)}\n" for u in range(U) for t in range(T) for c in range(C))
    found = read(csv(tmp_path, "vehicle,round,class,psi\n" + rows))
    assert found["psi"].tolist() == [[[1] * T, [0] * T], [[0] * T, [1] * T]]


def test_headers_may_be_spelt_with_capitals_spaces_and_a_byte_order_mark(tmp_path):
    found = read(csv(tmp_path, b"\xef\xbb\xbf Class , X,Y ,Deviation\r\n0,10,20,30\r\n1,-40,50,60\r\n"))
    assert found["centres"].tolist() == [[[10, 20], [-40, 50]]] * U


def test_a_later_file_overrides_an_earlier_one(tmp_path):
    first, second = csv(tmp_path, CLUSTERS), csv(tmp_path, CLUSTERS.replace("10,20", "11,22"), "second.csv")
    psi = csv(tmp_path, PSI, "psi.csv")
    found = read_survey([str(first), str(second), str(psi)], U, C, T)
    assert found["centres"][0, 0].tolist() == [11, 22]
    assert found["psi"].shape == (U, C, T)


def test_no_file_gives_nothing():
    assert read_survey([], U, C, T) == {}


def test_npz_shared_and_one_a_vehicle(tmp_path):
    centres, deviations = np.arange(4.0).reshape(2, 2), np.array([[1, 2], [3, 4]])
    found = read(npz(tmp_path, centres=centres, deviations=deviations, weights=[1, 3], psi=np.ones((U, C, T))))
    assert found["centres"].tolist() == [centres.tolist()] * U
    assert found["deviations"].tolist() == deviations.tolist()
    assert found["weights"].tolist() == [[0.25, 0.75]] * U
    assert found["psi"].tolist() == np.full((U, C, T), 0.5).tolist()


def test_a_field_is_built_on_the_files(tmp_path):
    files = [str(csv(tmp_path, CLUSTERS)), str(csv(tmp_path, PSI, "psi.csv"))]
    chosen = config_from_tree({"field": {"classes": C, "file": files, "weights": [1.0, 4.0]}}).field
    field = build_field(chosen, U, T, seed=0)
    assert field.psi[1, :, 0].tolist() == [0.25, 0.75]
    assert field.mixtures[1].centres.tolist() == [[10, 20], [-40, 50]]
    assert field.mixtures[1].weights.tolist() == [0.2, 0.8]


def test_psi_alone_leaves_the_places_to_be_drawn(tmp_path):
    chosen = config_from_tree({"field": {"classes": C, "file": str(csv(tmp_path, PSI))}}).field
    drawn = build_field(chosen.model_copy(update={"file": None}), U, T, seed=0)
    field = build_field(chosen, U, T, seed=0)
    assert np.array_equal(field.mixtures[0].centres, drawn.mixtures[0].centres)
    assert not np.array_equal(field.psi, drawn.psi)


# what is refused


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(CLUSTERS.replace("deviation", "sigma"), "unknown column 'sigma'", id="unknown column"),
        pytest.param("class,x\n0,1\n1,2\n", "columns class, x; allowed", id="missing column"),
        pytest.param("round,class\n0,1\n", "allowed", id="psi without psi"),
        pytest.param(CLUSTERS.replace("-40", "west"), "line 3: x = 'west' is not a number", id="not a number"),
        pytest.param(CLUSTERS.replace("-40", ""), "line 3: x = '' is not a number", id="empty cell"),
        pytest.param(CLUSTERS.replace("-40", "nan"), "line 3: x = 'nan' is not finite", id="NaN"),
        pytest.param(CLUSTERS.replace("60", "inf"), "line 3: deviation = 'inf' is not finite", id="inf"),
        pytest.param(PSI.replace("2,1,3", "2,1,1e999"), "line 7: psi = '1e999' is not finite", id="overflow"),
        pytest.param(CLUSTERS.replace("1,-40", "2,-40"), "line 3: class = '2'; allowed: whole numbers 0 to 1",
                     id="class too large"),
        pytest.param(CLUSTERS.replace("1,-40", "-1,-40"), "line 3: class = '-1'", id="class below 0"),
        pytest.param(CLUSTERS.replace("1,-40", "0.5,-40"), "line 3: class = '0.5'", id="half a class"),
        pytest.param(PSI.replace("2,1,3", "3,1,3"), "line 7: round = '3'; allowed: whole numbers 0 to 2",
                     id="round too large"),
        pytest.param("vehicle," + CLUSTERS.replace("\n0", "\n0,0").replace("\n1", "\n2,1"), "line 3: vehicle = '2'",
                     id="vehicle too large"),
        pytest.param(PSI.replace("2,1,3\n", ""), "no psi for vehicle 0, class 1, round 2", id="missing psi row"),
        pytest.param(CLUSTERS.replace("1,-40,50,60\n", ""), "no row for vehicle 0, class 1", id="missing cluster"),
        pytest.param(SAMPLES.replace("\n1", "\n0"), "class 1 has no sample", id="class without samples"),
        pytest.param("vehicle,class,x,y\n0,0,0,0\n0,1,1,1\n0,1,2,2\n", "class 0 has no sample",
                     id="vehicle without samples"),
        pytest.param("", "columns none", id="empty file"),
        pytest.param("class,x,y,deviation\n", "no rows", id="header only"),
        pytest.param(CLUSTERS.replace("30", "30,31"), "line 2: more cells than columns", id="too many cells"),
        pytest.param(CLUSTERS.replace(",60", ""), "line 3: deviation = None is not a number", id="too few cells"),
        pytest.param(CLUSTERS.replace("60", "0"), "deviations must be above 0", id="deviation 0"),
        pytest.param(CLUSTERS.replace("60", "-1"), "deviations must be above 0", id="negative deviation"),
        pytest.param("class,x,y,deviation,weight\n0,1,2,3,1\n1,1,2,3,0\n", "weights must be above 0", id="weight 0"),
        pytest.param("class,x,y\n0,0,0\n1,5,5\n", "deviations must be above 0", id="one sample a class"),
        pytest.param(PSI.replace("2,1,3", "2,1,-3"), "psi must be 0 or more", id="negative psi"),
        pytest.param(PSI.replace("2,1,3", "2,1,0").replace("2,0,1", "2,0,0"), "psi must be 0 or more, and above 0",
                     id="all-zero round"),
        pytest.param(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "", id="binary garbage"),
        pytest.param(CLUSTERS.encode("utf-16"), "", id="another encoding"),
        pytest.param(b"class,x,y,deviation\n0,1,2,3\n1,1,2,\xff\n", "", id="not UTF-8"),
        pytest.param(b"\x00" * 64, "", id="zeros"),
        pytest.param("class,x,y,deviation\n0,1,2," + "9" * 200_000 + "\n", "", id="a cell of 200 kB"),
        pytest.param(CLUSTERS.replace("\n1", "\n\n1").replace("60", "far"), "line 4: deviation = 'far'",
                     id="lines are counted as an editor counts them"),
        pytest.param(CLUSTERS.replace("30", '"30'), "line", id="a quote that never closes"),
    ],
)  # fmt: skip
def test_a_malformed_csv_is_refused_in_one_line_with_file_and_line(tmp_path, text, says):
    assert says in refusal(csv(tmp_path, text))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"psi": np.ones((C, T + 1))}, f"psi has shape {(C, T + 1)}; allowed: {(C, T)} or {(U, C, T)}"),
        ({"psi": np.ones((U + 1, C, T))}, "psi has shape"),
        ({"psi": np.float64(1)}, "psi has shape ()"),
        ({"psi": -np.ones((C, T))}, "psi must be 0 or more"),
        ({"psi": np.zeros((C, T))}, "psi must be 0 or more, and above 0"),
        ({"psi": np.full((C, T), np.nan)}, "psi holds a number that is not finite"),
        ({"psi": np.full((C, T), "a")}, ""),
        ({"psi": np.full((C, T), 1 + 2j)}, ""),
        ({"psi": np.zeros((C, T), [("a", "f8")])}, ""),
        ({"centres": np.ones((C, 3)), "deviations": np.ones(C)}, "centres has shape"),
        ({"centres": np.full((C, 2), np.inf), "deviations": np.ones(C)}, "centres holds a number that is not finite"),
        ({"centres": np.ones((C, 2)), "deviations": np.zeros(C)}, "deviations must be above 0"),
        ({"weights": -np.ones(C)}, "weights must be above 0"),
        ({"radii": np.ones(C)}, "unknown array 'radii'; allowed: centres, deviations, weights, psi"),
    ],
)
def test_a_malformed_npz_is_refused_in_one_line_with_its_name(tmp_path, arrays, says):
    assert says in refusal(npz(tmp_path, **arrays))


def test_centres_without_deviations_are_refused(tmp_path):
    with pytest.raises(BadInputError, match="centres and deviations come together"):
        read(npz(tmp_path, centres=np.ones((C, 2))))


def good_npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, psi=np.random.default_rng(0).random((C, T)))
    return buffer.getvalue()


def zip_of(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def npy_that_claims(shape: str) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def flipped(data: bytes) -> bytes:
    start = data.index(b"psi.npy") + len("psi.npy") + 24  # inside the compressed array
    return data[:start] + bytes(b ^ 0xFF for b in data[start : start + 12]) + data[start + 12 :]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: b"", id="empty"),
        pytest.param(lambda: b"this is no archive", id="not a zip"),
        pytest.param(lambda: b"PK\x03\x04 and then nothing", id="only a zip's first bytes"),
        pytest.param(lambda: good_npz()[:-30], id="truncated at the end"),
        pytest.param(lambda: good_npz()[:40], id="truncated at the front"),
        pytest.param(lambda: flipped(good_npz()), id="damaged inside"),
        pytest.param(lambda: npy(np.ones((C, T))), id="an NPY file with the wrong name"),
        pytest.param(lambda: zip_of("psi.npy", b"12"), id="a member that is no array"),
        pytest.param(lambda: zip_of("readme.txt", b"hello"), id="a zip of something else"),
        pytest.param(lambda: zip_of("psi.npy", npy_that_claims("(10**15,)")), id="a header with code in it"),
        pytest.param(lambda: zip_of("psi.npy", npy_that_claims(f"({10**15},)")), id="a header that asks for petabytes"),
    ],
)
def test_a_damaged_archive_is_refused_in_one_line(tmp_path, make: Callable[[], bytes]):
    refusal(csv(tmp_path, make(), "survey.npz"))


def test_an_object_array_is_refused_and_never_unpickled(tmp_path):
    marker = tmp_path / "was-here"

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (marker,))

    path = npz(tmp_path, psi=np.array([[Bomb()]], dtype=object))
    refusal(path)
    assert not marker.exists()
    with np.load(path, allow_pickle=True) as archive:
        archive["psi"]
    assert marker.exists()  # the bomb is live: it was not loaded above


def test_a_pickle_with_the_name_of_an_archive_is_never_unpickled(tmp_path):
    script = "import pickle, sys; open(sys.argv[1], 'wb').write(pickle.dumps(print))"
    path = tmp_path / "survey.npz"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    refusal(path)


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere.npz"])
def test_a_missing_file_is_refused(tmp_path, name):
    assert "No such file" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["folder.csv", "folder.npz", "folder"])
def test_a_folder_instead_of_a_file_is_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    assert "directory" in refusal(tmp_path / name)


@given(st.binary(max_size=200) | st.text('0123456789,.-\n\r"classxyroundpi ', max_size=200).map(str.encode))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_whatever_a_file_holds_only_bad_input_is_raised(tmp_path, data):
    for name in ("any.csv", "any.npz"):
        with contextlib.suppress(BadInputError):
            read(csv(tmp_path, data, name))


@given(st.integers(0, 400), st.integers(1, 255))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_whichever_byte_of_an_archive_is_damaged_only_bad_input_is_raised(tmp_path, at, change):
    data = bytearray(good_npz())
    data[at % len(data)] ^= change
    with contextlib.suppress(BadInputError):
        found = read(csv(tmp_path, bytes(data), "any.npz"))
        assert "psi" not in found or found["psi"].sum(axis=1) == pytest.approx(1.0)
