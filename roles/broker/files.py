"""What the broker's machine needs: a mosquitto configuration, logins, an access list, a certificate.

    mosquitto.conf           limits that lose nothing, and paths relative to this folder
    passwords                one line per login (roles/broker/logins.py), mode 0600
    acl                      what each login may read and write (transport/mqtt/topics.py), mode 0600
    ca.pem                   the federation's own certificate authority; every machine gets a copy
    server.pem, server.key   the broker's certificate, and its key with mode 0600

The authority's private key stays with the organiser. Messages that a full broker discards are sent again by
the transport, so the limits decide about speed and memory, not about correctness.

Implements specs/broker.md, section 1.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.broker.certificates import create_authority, issue_certificate
from veilsum.roles.broker.logins import is_observer, require_login_line, with_login
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.private_files import (
    make_private_folder,
    read_private_file,
    replace_private_file,
)
from veilsum.roles.federation.public_files import replace_public_file
from veilsum.transport.limits import MIB, Limits
from veilsum.transport.mqtt.topics import NOTICES, Topics

CARRIER = "MQTT"
"""What a broker speaks, for people."""
CONFIGURATION = "mosquitto.conf"
PASSWORDS = "passwords"
ACCESS_LIST = "acl"
AUTHORITY = "ca.pem"
AUTHORITY_KEY = "ca.key"
CERTIFICATE = "server.pem"
CERTIFICATE_KEY = "server.key"
LOGIN_IS_IDENTIFIER = "use_username_as_clientid true"
"""The line that makes mosquitto put the login in place of whatever client identifier a client asks for."""

LARGEST_PACKET = 2 * MIB
_SMALLEST_QUEUE = 64 * MIB

_MOSQUITTO = """\
# mosquitto for the veilsum federation "{name}". Started by `veilsum broker`, or in this folder by
#   mosquitto -c mosquitto.conf
# The paths are relative to this folder. Nothing here is a secret of the protocol: the broker is not trusted.

listener {listener}
{tls}
# The login is the client identifier, whatever a client asks for, so that nobody can push another off.
{login_is_identifier}

# Each identity has a login, and may write under its own name only.
allow_anonymous false
password_file {passwords}
acl_file {acl}
allow_zero_length_clientid false

# Limits that lose nothing: no message is dropped by count, a slow subscriber may fall behind by this many
# bytes (every party may have {window_mib} MiB under way to it), and larger packets than ours are not accepted.
max_queued_messages 0
max_queued_bytes {queue_bytes}
max_packet_size {packet_bytes}
set_tcp_nodelay true

# Nothing of ours is retained; retained messages on our topics would be garbage.
retain_available false

persistence true
persistence_location data/
autosave_interval 60

sys_interval 0
log_dest stderr
log_type error
log_type warning
log_type notice
connection_messages false
"""

_TLS = """\
certfile {certificate}
keyfile {key}
tls_version tlsv1.2
"""


def configuration_keywords() -> frozenset[str]:
    """The keywords that a mosquitto.conf of ours may have."""
    text = _MOSQUITTO.replace("{tls}", _TLS).replace("{login_is_identifier}", LOGIN_IS_IDENTIFIER)
    return frozenset(line.split()[0] for line in text.splitlines() if line and not line.startswith("#"))


def mosquitto_configuration(config: FederationConfig) -> str:
    """The text of mosquitto.conf."""
    window = Limits().window_bytes
    listener = str(config.broker_port)
    if is_local(config.broker_host):
        listener += " 127.0.0.1"
    tls = _TLS.format(certificate=CERTIFICATE, key=CERTIFICATE_KEY) if config.broker_tls else ""
    return _MOSQUITTO.format(
        name=config.name,
        listener=listener,
        tls=tls,
        login_is_identifier=LOGIN_IS_IDENTIFIER,
        passwords=PASSWORDS,
        acl=ACCESS_LIST,
        window_mib=window // MIB,
        queue_bytes=max(_SMALLEST_QUEUE, 2 * window * (len(config.parties) + 1)),
        packet_bytes=LARGEST_PACKET,
    )


def access_list(federation_id: str, names: Iterable[str], invited: Iterable[str] = ()) -> str:
    """The text of mosquitto's acl file: what each of these identities needs, and nothing else."""
    topics, full = Topics(federation_id), set(names)
    blocks = []
    for name in sorted(full | set(invited)):
        if is_observer(name):
            rules = topics.observer_rules()
        elif name == NOTICES:
            rules = topics.notice_rules()
        else:
            rules = topics.access_rules(name) if name in full else topics.invited_rules()
        blocks.append("\n".join([f"user {topics.login(name)}", *(rule.mosquitto() for rule in rules)]))
    return "\n\n".join(blocks) + "\n"


def read_logins(folder: Path, federation_id: str) -> dict[str, str]:
    """Name -> line with this name, of one federation; lines without a federation were written by an earlier version."""
    prefix = Topics(federation_id).login("x").removesuffix("x")
    named = ((login.removeprefix(prefix), line) for login, line in read_password_file(folder).items())
    return {name: with_login(line, name) for name, line in named}


def read_password_file(folder: Path) -> dict[str, str]:
    """Login -> line of the password file; empty if there is none yet."""
    path = folder / PASSWORDS
    if not path.exists():
        return {}
    lines = path.read_text(encoding="ascii").splitlines()
    return dict(require_login_line(line) for line in lines if line)


def write_logins(
    folder: Path,
    logins: Mapping[str, str],
    federation_id: str,
    names: Iterable[str],
    invited: Iterable[str] = (),
) -> None:
    """Replace password file and access list; only these identities, observers and the roster's own login are let in."""
    admitted = {*names, *(name for name in logins if is_observer(name) or name == NOTICES)}
    waiting = {*invited} - admitted
    topics = Topics(federation_id)
    lines = [
        with_login(line, topics.login(name))
        for name, line in sorted(logins.items())
        if name in admitted | waiting
    ]
    replace_private_file(folder / PASSWORDS, "".join(f"{line}\n" for line in lines).encode("ascii"))
    replace_private_file(folder / ACCESS_LIST, access_list(federation_id, admitted, waiting).encode("ascii"))


def write_configuration(folder: Path, config: FederationConfig) -> None:
    make_private_folder(folder)
    make_private_folder(folder / "data")
    replace_public_file(folder / CONFIGURATION, mosquitto_configuration(config).encode("utf-8"))


def write_certificates(folder: Path, organiser_folder: Path, config: FederationConfig) -> None:
    """A certificate for the broker's host, from the federation's own authority, which is made if need be."""
    key_path = organiser_folder / AUTHORITY_KEY
    if key_path.exists():
        if not (folder / AUTHORITY).exists():
            raise LocalProtocolError(f"{folder / AUTHORITY} is missing: restore it, or remove {key_path}")
        authority, key = (folder / AUTHORITY).read_bytes(), read_private_file(key_path)
    else:
        authority, key = create_authority(f"veilsum federation {config.name}")
        replace_private_file(key_path, key)
        replace_public_file(folder / AUTHORITY, authority)
    hosts = dict.fromkeys((config.broker_host, "localhost", "127.0.0.1", "::1"))
    certificate, private = issue_certificate(authority, key, hosts)
    replace_public_file(folder / CERTIFICATE, certificate)
    replace_private_file(folder / CERTIFICATE_KEY, private)


def is_local(host: str) -> bool:
    """Whether a broker under this name serves this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
