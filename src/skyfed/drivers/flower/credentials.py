"""The credentials of a station and its vehicles: certificates and keys, one folder each."""

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skyfed.errors import BadInputError
from skyfed.files import make_private, storage_errors, write_whole

CREDENTIALS = "fleet"  # the folder of a station's credentials, inside its run's folder
LISTED = "vehicles.json"  # address and public keys, among a station's credentials
_AUTHORITY = "skyfed fleet"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"  # between the dots of a name
_VALID = timedelta(days=3650)
_SLACK = timedelta(days=1)  # for machines whose clocks are behind


@dataclass(frozen=True)
class StationCredentials:
    """What a station has besides its run's folder; in a rehearsal all vehicles are on its own machine."""

    place: Path
    address: str
    vehicles: dict[int, str]  # public keys, PEM
    rehearsal: bool = False

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
    """Write certificates and keys for a station and its vehicles; the authority's own key is not kept."""
    host, _ = split_address(address)
    authority_key, station_key = _new_key(), _new_key()
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    ca = _certificate(_AUTHORITY, authority_key, authority_key, (x509.BasicConstraints(True, 0), True), (usage, True))
    certificate = _certificate(
        "skyfed station", station_key, authority_key,
        (x509.BasicConstraints(False, None), True),
        (x509.SubjectAlternativeName(_names_of(host)), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False),
    )  # fmt: skip
    for place in (station, *vehicles):
        with storage_errors(place):
            place.mkdir(parents=True, exist_ok=True)
        make_private(place)
        write_whole(place / "ca.pem", ca)
    write_whole(station / "cert.pem", certificate)
    write_secret(station / "key.pem", _private(station_key, serialization.PrivateFormat.PKCS8))
    write_secret(station / "runtime.secret", os.urandom(32))
    public = {}
    for u, place in enumerate(vehicles):
        key = _new_key()
        write_secret(place / "vehicle.key", _private(key, serialization.PrivateFormat.OpenSSH))
        write_whole(place / "vehicle.json", json.dumps({"vehicle": u, "station": address}).encode())
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public[u] = key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()
    write_vehicles(StationCredentials(station, address, public, rehearsal))


def write_vehicles(credentials: StationCredentials) -> None:
    """Write the list of keys that a station knows."""
    public = {str(u): credentials.vehicles[u] for u in sorted(credentials.vehicles)}
    tree = {"address": credentials.address, "rehearsal": credentials.rehearsal, "vehicles": public}
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
        credentials = StationCredentials(place, address, read_keys(tree), rehearsal)
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
    file = credentials.place / "vehicle.key"
    try:
        key = serialization.load_ssh_private_key(file.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadInputError(f"{file}: damaged") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInputError(f"{file}: a key of another kind")
    return key


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
    *extensions: tuple[x509.ExtensionType, bool],
) -> bytes:
    """Return a certificate of the fleet's authority as PEM; extensions come with whether they are critical."""
    issuer, owner = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (_AUTHORITY, subject))
    now, public = datetime.now(UTC), key.public_key()
    builder = x509.CertificateBuilder(issuer, owner, public, x509.random_serial_number())
    builder = builder.not_valid_before(now - _SLACK).not_valid_after(now + _VALID)
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
