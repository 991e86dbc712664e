"""A private certificate authority and a broker certificate, made afresh for each run, as a federation makes its own."""

from __future__ import annotations

from pathlib import Path

from veilsum.roles.broker.certificates import create_authority, issue_certificate


def make_certificates(folder: Path) -> None:
    """Write ca.pem, broker.pem and broker.key for a broker called localhost."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, authority_key = create_authority(f"test authority {folder.name}")
    certificate, key = issue_certificate(authority, authority_key, ["localhost", "127.0.0.1"])
    (folder / "ca.pem").write_bytes(authority)
    (folder / "broker.pem").write_bytes(certificate)
    (folder / "broker.key").touch(mode=0o600)
    (folder / "broker.key").write_bytes(key)
