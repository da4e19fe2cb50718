"""What station and vehicles carry: certificates, keys, config and flights, a folder each."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole

_VALID = timedelta(days=3650)
_SLACK = timedelta(days=1)  # for machines whose clocks are behind


@dataclass(frozen=True)
class StationKit:
    """What a station has besides its run's folder."""

    place: Path
    address: str
    vehicles: dict[int, str]  # public keys, PEM

    @property
    def authority(self) -> bytes:
        """Return the certificate that the vehicles trust."""
        return (self.place / "ca.pem").read_bytes()


@dataclass(frozen=True)
class VehicleKit:
    """What a vehicle has besides config.toml and plan.npz."""

    place: Path
    vehicle: int
    station: str


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port"."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadInputError(f"--address {address!r}: allowed: host:port, as in 192.0.2.1:9092")
    return host.strip("[]"), int(port)


def make_kits(station: Path, vehicles: list[Path], address: str) -> None:
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
    write_vehicles(station, address, public)


def write_vehicles(station: Path, address: str, public: dict[int, str]) -> None:
    """Write the list of keys that a station knows."""
    tree = {"address": address, "vehicles": {str(u): public[u] for u in sorted(public)}}
    write_whole(station / "vehicles.json", json.dumps(tree, indent=2).encode())


def read_station(place: Path) -> StationKit:
    """Read a station's kit."""
    tree = _json(place / "vehicles.json", "a station's folder: skyfed fleet keys makes one")
    try:
        return StationKit(place, str(tree["address"]), {int(u): str(key) for u, key in tree["vehicles"].items()})
    except (KeyError, ValueError, AttributeError):
        raise BadInputError(f"{place / 'vehicles.json'}: damaged") from None


def read_vehicle(place: Path) -> VehicleKit:
    """Read a vehicle's kit."""
    tree = _json(place / "vehicle.json", "a vehicle's folder: skyfed fleet keys makes one")
    try:
        return VehicleKit(place, int(tree["vehicle"]), str(tree["station"]))
    except (KeyError, ValueError):
        raise BadInputError(f"{place / 'vehicle.json'}: damaged") from None


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
