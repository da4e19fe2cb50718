"""A key that two vehicles use is noticed, and keys are given, replaced, taken away and put back."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from cryptography import x509

from fleet_cases import SMALL, sets
from skyfed.cli import run_arguments
from skyfed.drivers.flower import credentials as credentials_module
from skyfed.drivers.flower.credentials import (
    CREDENTIALS,
    QUARANTINE,
    make_credentials,
    read_station,
    read_vehicle,
    renew_authority,
    renew_station,
)
from skyfed.drivers.flower.policy import POLICY
from skyfed.drivers.flower.sessions import Sessions

KEY, OTHER = b"key", b"other"
A, B, C = ("a" * 32, "b" * 32, "c" * 32)


class Watch:
    """Sessions with a clock of the test's own."""

    def __init__(self, place: Path) -> None:
        self.now = 0.0
        self.path = place / QUARANTINE
        self.sessions = Sessions(self.path, lambda: self.now)

    def ask(self, session: str, key: bytes = KEY, signed: bool = True, after: float = 3.0) -> str:
        self.now += after
        return self.sessions.check(key, session, f"192.0.2.{session[0]}", lambda: signed)


def test_a_vehicle_that_is_started_again_is_let_in(tmp_path):
    watch = Watch(tmp_path)
    assert [watch.ask(session) for session in (A, A, B, B, C, C)] == [""] * 6
    assert not watch.sessions.quarantined()


def test_a_session_that_comes_back_shows_a_copy_of_the_key(tmp_path):
    watch = Watch(tmp_path)
    assert [watch.ask(session) for session in (A, B, A, B, A)] == [""] * 5  # within the grace of late requests
    assert "two vehicles use this key" in watch.ask(A)
    assert watch.sessions.quarantined() == {KEY}
    assert json.loads(watch.path.read_text()) == {"key": "its key is used twice, from 192.0.2.b and from 192.0.2.a"}


def test_one_key_says_nothing_of_another(tmp_path):
    watch = Watch(tmp_path)
    for _ in range(9):
        assert watch.ask(A, KEY) == watch.ask(B, OTHER) == ""


def test_nobody_is_quarantined_by_who_cannot_sign(tmp_path):
    watch = Watch(tmp_path)
    watch.ask(A)
    assert watch.ask(B, signed=False) == "a false signature"
    for _ in range(9):
        assert watch.ask(A) == ""


@pytest.mark.parametrize("session", ["", "short", "x" * 65, "a" * 31 + "\n", "ä" * 8, "ä" * 32, "²" * 32])
def test_a_vehicle_shows_a_session(tmp_path, session):
    assert Watch(tmp_path).sessions.check(KEY, session, "", lambda: True) == "no session"


def test_who_is_let_in_again_starts_anew(tmp_path):
    watch = Watch(tmp_path)
    for session in (A, B):
        watch.ask(session)
    assert watch.ask(A, after=60)
    assert watch.sessions.quarantined() == {KEY}
    watch.path.write_text("{}")
    assert watch.sessions.quarantined() == set()
    assert [watch.ask(A, after=60) for _ in range(3)] == [""] * 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("keys") / "fleet"
    words = ["fleet", "keys", "smoke", "--address", "127.0.0.1:9", "--out", str(place), *sets(*SMALL, "vehicles=2")]
    assert run_arguments([*words, "--plain"]) == 0
    return place


def test_a_new_key_replaces_the_old_one(made, tmp_path, capsys):
    before = read_station(made / "station" / CREDENTIALS).vehicles
    assert run_arguments(["fleet", "key", str(made / "station"), "1", "--out", str(tmp_path / "new")]) == 0
    assert "a key of vehicle 1, which replaces its last one" in capsys.readouterr().out
    after = read_station(made / "station" / CREDENTIALS)
    assert after.vehicles[0] == before[0]
    assert after.vehicles[1] != before[1]
    assert after.removed[1] == before[1]
    assert read_vehicle(tmp_path / "new").vehicle == 1
    assert (tmp_path / "new" / POLICY).exists()
    assert run_arguments(["fleet", "restore", str(made / "station"), "1"]) == 2  # it has a key
    assert run_arguments(["fleet", "key", str(made / "station"), "1", "--out", str(tmp_path / "new")]) == 2
    assert "has a key already" in capsys.readouterr().err


def test_a_vehicle_without_a_key_gets_one_and_a_strange_one_does_not(made, tmp_path, capsys):
    station = str(made / "station")
    assert run_arguments(["fleet", "revoke", station, "0"]) == 0
    assert run_arguments(["fleet", "revoke", station, "0"]) == 2
    assert "no key of it here" in capsys.readouterr().err
    assert run_arguments(["fleet", "key", station, "0", "--out", str(tmp_path / "again")]) == 0
    assert "written to" in capsys.readouterr().out
    assert 0 in read_station(made / "station" / CREDENTIALS).vehicles
    assert run_arguments(["fleet", "key", station, "2", "--out", str(tmp_path / "third")]) == 2
    assert "vehicle 2: allowed: 0 to 1" in capsys.readouterr().err
    assert run_arguments(["fleet", "key", station, "0"]) == 2
    assert "--out DIR is needed" in capsys.readouterr().err


def test_a_quarantine_keeps_a_vehicle_out_until_it_ends(made, capsys):
    credentials = read_station(made / "station" / CREDENTIALS)
    key = credentials.vehicles[1]
    (credentials.place / QUARANTINE).write_text(json.dumps({key: "its key is used\x1b[2J twice"}))
    assert credentials.quarantined == {1: "its key is used [2J twice"}
    assert 1 not in credentials.admitted
    assert run_arguments(["fleet", "restore", str(made / "station"), "1"]) == 0
    assert credentials.admitted == credentials.vehicles


def ends(path: Path) -> timedelta:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc - datetime.now(UTC)


def test_a_station_renews_its_certificate_before_it_ends(tmp_path, monkeypatch):
    make_credentials(tmp_path / "s", [tmp_path / "v"], "127.0.0.1:9")
    credentials = read_station(tmp_path / "s")
    own, authority = tmp_path / "s" / "cert.pem", tmp_path / "s" / "ca.pem"
    assert timedelta(days=20) < ends(own) < timedelta(days=22)
    assert timedelta(days=364) < ends(authority) < timedelta(days=366)
    assert renew_station(credentials) == ""
    valid = credentials_module._VALID
    monkeypatch.setattr(credentials_module, "_VALID", {**valid, "station": timedelta(days=6)})
    credentials_module._certify(credentials)
    monkeypatch.setattr(credentials_module, "_VALID", valid)
    assert ends(own) < timedelta(days=7)
    assert renew_station(credentials) == "the station's certificate was renewed"
    assert ends(own) > timedelta(days=20)


def test_an_authority_that_ends_soon_is_named_and_renewed_with_the_same_key(tmp_path, monkeypatch):
    valid = credentials_module._VALID
    monkeypatch.setattr(credentials_module, "_VALID", {**valid, "authority": timedelta(days=12)})
    make_credentials(tmp_path / "s", [tmp_path / "v"], "127.0.0.1:9")
    credentials = read_station(tmp_path / "s")
    before = x509.load_pem_x509_certificate(credentials.authority)
    assert ends(tmp_path / "s" / "cert.pem") <= timedelta(days=12)
    assert "the fleet's authority ends in 11 days" in renew_station(credentials)
    monkeypatch.setattr(credentials_module, "_VALID", valid)
    renew_authority(credentials)
    after = x509.load_pem_x509_certificate(credentials.authority)
    assert after.public_key() == before.public_key()
    assert renew_station(credentials) == ""


def test_a_folder_of_an_earlier_version_keeps_its_certificate(tmp_path):
    make_credentials(tmp_path / "s", [], "127.0.0.1:9")
    (tmp_path / "s" / "ca.key").unlink()
    assert renew_station(read_station(tmp_path / "s")) == ""
