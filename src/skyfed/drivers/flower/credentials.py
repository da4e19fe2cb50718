"""What station and vehicles carry: certificates, keys, config and flights, a folder each."""

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
from skyfed.files import storage_errors, write_whole

LISTED = "vehicles.json"  # address and public keys, in a station's kit
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"  # between the dots of a name
_VALID = timedelta(days=3650)
_SLACK = timedelta(days=1)  # for machines whose clocks are behind


@dataclass(frozen=True)
class StationCredentials:
    """What a station has besides its run's folder; that of a rehearsal has vehicles on its own machine only."""

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
    return len(host) < 254 and all(re.fullmatch(_LABEL, one) for one in labels) and not labels[-1].isdigit()


def make_credentials(station: Path, vehicles: list[Path], address: str, rehearsal: bool = False) -> None:
    """Write certificates and keys for a station and its vehicles; the authority's own key is not kept."""
    host, _ = split_address(address)
    authority_key, authority = _authority()
    key, certificate = _certificate(host, authority_key, authority)
    ca = authority.public_bytes(serialization.Encoding.PEM)
    with storage_errors(station):
        station.mkdir(parents=True, exist_ok=True)
    write_whole(station / "ca.pem", ca)
    write_whole(station / "cert.pem", certificate.public_bytes(serialization.Encoding.PEM))
    _write_secret(station / "key.pem", _private(key, serialization.PrivateFormat.PKCS8))
    _write_secret(station / "runtime.secret", os.urandom(32))
    public = {}
    for u, place in enumerate(vehicles):
        own = ec.generate_private_key(ec.SECP384R1())
        with storage_errors(place):
            place.mkdir(parents=True, exist_ok=True)
        write_whole(place / "ca.pem", ca)
        _write_secret(place / "vehicle.key", _private(own, serialization.PrivateFormat.OpenSSH))
        write_whole(place / "vehicle.json", json.dumps({"vehicle": u, "station": address}).encode())
        public[u] = _public(own)
    write_vehicles(StationCredentials(station, address, public, rehearsal))


def write_vehicles(kit: StationCredentials) -> None:
    """Write the list of keys that a station knows."""
    public = {str(u): kit.vehicles[u] for u in sorted(kit.vehicles)}
    tree = {"address": kit.address, "rehearsal": kit.rehearsal, "vehicles": public}
    write_whole(kit.place / LISTED, json.dumps(tree, indent=2).encode())


def read_station(place: Path) -> StationCredentials:
    """Read a station's kit."""
    file = place / LISTED
    tree = _json(file, "a station's folder: skyfed fleet keys makes one")
    for name in ("ca.pem", "cert.pem", "key.pem", "runtime.secret"):
        if not (place / name).is_file():
            raise BadInputError(f"{place}: not a station's folder (no {name})")
    try:
        kit = StationCredentials(place, str(tree["address"]), read_keys(tree), bool(tree.get("rehearsal", False)))
    except (KeyError, ValueError, AttributeError, TypeError):
        raise BadInputError(f"{file}: damaged") from None
    split_address(kit.address, f"{file}: address")
    return kit


def read_keys(tree: dict[str, Any]) -> dict[int, str]:
    """Return the public keys of a station's list; raises ValueError and its kin for what are none."""
    found = {int(u): str(key) for u, key in tree["vehicles"].items()}
    for key in found.values():
        serialization.load_pem_public_key(key.encode())
    return found


def read_number(place: Path) -> int:
    """Return which vehicle a folder is of."""
    return _named(place).vehicle


def read_vehicle(place: Path) -> VehicleCredentials:
    """Read a vehicle's kit."""
    kit = _named(place)
    for name in ("config.toml", "plan.npz", "ca.pem", "vehicle.key"):
        if not (place / name).is_file():
            raise BadInputError(f"{place}: not a vehicle's folder (no {name})")
    own_key(kit)
    return kit


def _named(place: Path) -> VehicleCredentials:
    file = place / "vehicle.json"
    tree = _json(file, "a vehicle's folder: skyfed fleet keys makes one")
    try:
        kit = VehicleCredentials(place, int(tree["vehicle"]), str(tree["station"]))
    except (KeyError, ValueError, TypeError):
        raise BadInputError(f"{file}: damaged") from None
    split_address(kit.station, f"{file}: station")
    return kit


def own_key(kit: VehicleCredentials) -> ec.EllipticCurvePrivateKey:
    """Return the key that a vehicle signs with."""
    file = kit.place / "vehicle.key"
    try:
        key = serialization.load_ssh_private_key(file.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadInputError(f"{file}: damaged") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInputError(f"{file}: a key of another kind")
    return key


def _json(path: Path, wanted: str) -> dict[str, Any]:
    if not path.is_file():
        raise BadInputError(f"{path.parent}: not {wanted}")
    try:
        tree = json.loads(path.read_bytes())
    except ValueError:
        raise BadInputError(f"{path}: damaged") from None
    return tree if isinstance(tree, dict) else {}


def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key, name = ec.generate_private_key(ec.SECP384R1()), _name("skyfed fleet")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(True, 0), True).add_extension(usage, True)
    return key, builder.sign(key, hashes.SHA384())


def _certificate(
    host: str, authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP384R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    try:
        names.append(x509.IPAddress(ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(_name("skyfed station"), authority.subject, key)
        .add_extension(x509.BasicConstraints(False, None), True)
        .add_extension(x509.SubjectAlternativeName(list(dict.fromkeys(names))), False)
        .add_extension(known, False)
    )
    return key, builder.sign(authority_key, hashes.SHA384())


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return (
        builder.not_valid_before(now - _SLACK)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _public(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def _write_secret(path: Path, data: bytes) -> None:
    with storage_errors(path):
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
