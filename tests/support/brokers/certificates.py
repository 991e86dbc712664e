"""A private certificate authority and a broker certificate, made afresh for each run."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID = datetime.timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)


def make_certificates(folder: Path) -> None:
    """Write ca.pem, broker.pem and broker.key for a broker called localhost."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    ca_key, broker_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _name(f"test authority {folder.name}")
    draft = x509.CertificateBuilder().not_valid_before(now - VALID).not_valid_after(now + VALID)
    ca_certificate = (
        draft.subject_name(ca)
        .issuer_name(ca)
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    broker_certificate = (
        draft.subject_name(_name("localhost"))
        .issuer_name(ca)
        .public_key(broker_key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    for name, certificate in (("ca", ca_certificate), ("broker", broker_certificate)):
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(folder / "broker.key", broker_key)
