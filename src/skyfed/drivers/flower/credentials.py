"""The credentials of a station and its vehicles: certificates and keys, one folder each."""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skyfed.errors import BadInputError, one_line
from skyfed.files import make_private, read_json_table, storage_errors, write_whole

CREDENTIALS = "fleet"  # the folder of a station's credentials, inside its run's folder
LISTED = "vehicles.json"  # address and public keys, among a station's credentials
_AUTHORITY = "skyfed fleet"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"  # between the dots of a name
QUARANTINE = "quarantine.json"  # keys that two vehicles used at once, written by the guard
_VALID = {"authority": timedelta(days=365), "station": timedelta(days=21)}
_RENEW = timedelta(days=7)  # a station's certificate is made anew when less is left of it
_SLACK = timedelta(days=1)  # for machines whose clocks are behind


@dataclass(frozen=True)
class StationCredentials:
    """What a station has besides its run's folder; in a rehearsal all vehicles are on its own machine."""

    place: Path
    address: str
    vehicles: dict[int, str]  # public keys, PEM
    rehearsal: bool = False
    removed: dict[int, str] = field(default_factory=dict)  # the last key of each that was taken off the list

    @property
    def quarantined(self) -> dict[int, str]:
        """Vehicles whose key was used by two at once, and how that showed."""
        known = read_json_table(self.place / QUARANTINE) or {}
        return {u: one_line(str(known[key])) for u, key in self.vehicles.items() if key in known}

    @property
    def admitted(self) -> dict[int, str]:
        """The keys that are let in."""
        kept_out = self.quarantined
        return {u: key for u, key in self.vehicles.items() if u not in kept_out}

    @property
    def authority(self) -> bytes:
        """Return the certificate that the vehicles trust."""
        return (self.place / "ca.pem").read_bytes()


@dataclass(frozen=True)
class VehicleCredentials:
    """What a vehicle has besides config.toml and plan.npz."""

    place: Path
    vehicle: int
    station: str


def split_address(address: str, where: str = "--address") -> tuple[str, int]:
    """Return host and port of "host:port"; the host is an IPv4 address or a name."""
    host, _, port = address.rpartition(":")
    if not _is_host(host) or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise BadInputError(f"{where} {address!r}: allowed: host:port, as in 192.0.2.1:9092 or station.example:9092")
    return host, int(port)


def _is_host(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).version == 4
    labels = host.split(".")
    return len(host) < 254 and all(re.fullmatch(_LABEL, label) for label in labels) and not labels[-1].isdigit()


def make_credentials(station: Path, vehicles: list[Path], address: str, rehearsal: bool = False) -> None:
    """Write certificates and keys for a station and its vehicles."""
    split_address(address)
    authority, own = _new_key(), _new_key()
    _private_folder(station)
    write_secret(station / "ca.key", _private(authority, serialization.PrivateFormat.PKCS8))
    write_secret(station / "key.pem", _private(own, serialization.PrivateFormat.PKCS8))
    write_secret(station / "runtime.secret", os.urandom(32))
    credentials = StationCredentials(station, address, {}, rehearsal)
    renew_authority(credentials)
    public = {u: give_key(credentials, u, place) for u, place in enumerate(vehicles)}
    write_vehicles(replace(credentials, vehicles=public))


def give_key(credentials: StationCredentials, vehicle: int, place: Path) -> str:
    """Write a new key, and where the station is, into a vehicle's folder; returns the public key."""
    _private_folder(place)
    key = _new_key()
    write_whole(place / "ca.pem", credentials.authority)
    write_secret(place / "vehicle.key", _private(key, serialization.PrivateFormat.OpenSSH))
    about = {"vehicle": vehicle, "station": credentials.address}
    write_whole(place / "vehicle.json", json.dumps(about).encode())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def renew_authority(credentials: StationCredentials) -> datetime:
    """Write a new certificate of the fleet's authority, and with it one of the station; returns when it ends.

    The authority's key stays the same, so vehicles with the earlier certificate go on until that one ends.
    """
    authority = _load_key(credentials.place / "ca.key")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    extensions = (x509.BasicConstraints(True, 0), True), (usage, True)
    write_whole(
        credentials.place / "ca.pem",
        _certificate(_AUTHORITY, authority, authority, _VALID["authority"], *extensions),
    )
    _certify(credentials)
    return _ends(credentials.place / "ca.pem")


def renew_station(credentials: StationCredentials) -> str:
    """Make the station's certificate anew when it ends soon; returns a line where somebody should know.

    Folders made by skyfed 0.1 lack the authority's key and keep their certificate.
    """
    if not (credentials.place / "ca.key").exists():
        return ""
    left = _ends(credentials.place / "ca.pem") - datetime.now(UTC)
    if _ends(credentials.place / "cert.pem") - datetime.now(UTC) < min(_RENEW, left):
        _certify(credentials)
        return "the station's certificate was renewed"
    if left < 4 * _RENEW:
        return (
            f"the fleet's authority ends in {left.days} days: run skyfed fleet renew, and carry ca.pem to the vehicles"
        )
    return ""


def _certify(credentials: StationCredentials) -> None:
    """Write a certificate of the station, which ends with that of its authority at the latest."""
    authority, own = (_load_key(credentials.place / name) for name in ("ca.key", "key.pem"))
    host, _ = split_address(credentials.address)
    valid = min(_VALID["station"], _ends(credentials.place / "ca.pem") - datetime.now(UTC))
    certificate = _certificate(
        "skyfed station", own, authority, valid,
        (x509.BasicConstraints(False, None), True),
        (x509.SubjectAlternativeName(_names_of(host)), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False),
    )  # fmt: skip
    write_whole(credentials.place / "cert.pem", certificate)


def _private_folder(place: Path) -> None:
    with storage_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    make_private(place)


def _ends(path: Path) -> datetime:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except ValueError:
        raise BadInputError(f"{path}: damaged") from None


def _load_key(
    path: Path, load: Callable[[bytes, None], object] = serialization.load_pem_private_key
) -> ec.EllipticCurvePrivateKey:
    try:
        key = load(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadInputError(f"{path}: damaged") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInputError(f"{path}: a key of another kind")
    return key


def write_vehicles(credentials: StationCredentials) -> None:
    """Write the list of keys that a station knows."""
    keys, removed = (
        {str(u): key for u, key in sorted(own.items())} for own in (credentials.vehicles, credentials.removed)
    )
    tree = {"address": credentials.address, "rehearsal": credentials.rehearsal, "vehicles": keys, "removed": removed}
    write_whole(credentials.place / LISTED, json.dumps(tree, indent=2).encode())


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that nobody else may read."""
    with storage_errors(path):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)


def read_station(place: Path) -> StationCredentials:
    """Read a station's credentials."""
    file = place / LISTED
    tree = _read_tree(file, "station")
    _require(place, "station", "ca.pem", "cert.pem", "key.pem", "runtime.secret")
    try:
        address, rehearsal = str(tree["address"]), bool(tree.get("rehearsal", False))
        removed = read_keys({"vehicles": tree.get("removed", {})})
        credentials = StationCredentials(place, address, read_keys(tree), rehearsal, removed)
    except (KeyError, ValueError, AttributeError, TypeError):
        raise BadInputError(f"{file}: damaged") from None
    split_address(address, f"{file}: address")
    return credentials


def read_keys(tree: dict[str, Any]) -> dict[int, str]:
    """Return the public keys of a station's list; raises ValueError or a similar error for invalid ones."""
    keys = {int(u): str(key) for u, key in tree["vehicles"].items()}
    for key in keys.values():
        serialization.load_pem_public_key(key.encode())
    return keys


def read_vehicle(place: Path) -> VehicleCredentials:
    """Read the credentials of a vehicle that is ready to fly."""
    credentials = read_identity(place)
    _require(place, "vehicle", "config.toml", "plan.npz", "ca.pem", "vehicle.key")
    own_key(credentials)
    return credentials


def read_identity(place: Path) -> VehicleCredentials:
    """Read which vehicle a folder belongs to, and its station."""
    file = place / "vehicle.json"
    tree = _read_tree(file, "vehicle")
    try:
        credentials = VehicleCredentials(place, int(tree["vehicle"]), str(tree["station"]))
    except (KeyError, ValueError, TypeError):
        raise BadInputError(f"{file}: damaged") from None
    split_address(credentials.station, f"{file}: station")
    return credentials


def own_key(credentials: VehicleCredentials) -> ec.EllipticCurvePrivateKey:
    """Return the key that a vehicle signs with."""
    return _load_key(credentials.place / "vehicle.key", serialization.load_ssh_private_key)


def _read_tree(path: Path, owner: str) -> dict[str, Any]:
    if not path.is_file():
        raise BadInputError(f"{path.parent}: not a {owner}'s folder: skyfed fleet keys makes one")
    try:
        tree = json.loads(path.read_bytes())
    except ValueError:
        raise BadInputError(f"{path}: damaged") from None
    return tree if isinstance(tree, dict) else {}


def _require(place: Path, owner: str, *names: str) -> None:
    for name in names:
        if not (place / name).is_file():
            raise BadInputError(f"{place}: not a {owner}'s folder (no {name})")


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    valid: timedelta,
    *extensions: tuple[x509.ExtensionType, bool],
) -> bytes:
    """Return a certificate of the fleet's authority as PEM; extensions come with whether they are critical."""
    issuer, owner = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (_AUTHORITY, subject))
    now, public = datetime.now(UTC), key.public_key()
    builder = x509.CertificateBuilder(issuer, owner, public, x509.random_serial_number())
    builder = builder.not_valid_before(now - _SLACK).not_valid_after(now + valid)
    for extension, critical in ((x509.SubjectKeyIdentifier.from_public_key(public), False), *extensions):
        builder = builder.add_extension(extension, critical)
    return builder.sign(authority_key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)


def _names_of(host: str) -> list[x509.GeneralName]:
    """Return the names by which a station is reached: from its own machine, and from others."""
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    try:
        names.append(x509.IPAddress(ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    return list(dict.fromkeys(names))


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
