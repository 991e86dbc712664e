"""Where a broker is and how to be let in."""

from __future__ import annotations

import errno
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from veilsum.transport.errors import BadSetting

if TYPE_CHECKING:
    from pathlib import Path

MqttVersion: TypeAlias = Literal["auto", "3.1.1", "5"]


class _TidySocket(ssl.SSLSocket):
    """A socket that does not stay open when the handshake fails, or the connection breaks before it."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except OSError as error:
            # Python looks here whether a connection is there at all, and goes on with one that is not.
            if self.version() is None and error.errno not in (errno.ENOTCONN, errno.EINVAL):
                self.close()
            raise

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust as a broker, and optionally who we are; without `ca`, the authorities of this machine."""

    ca: Path | str | None = None
    certificate: Path | str | None = None
    key: Path | str | None = None

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca, self.certificate, self.key) if file is not None)
            raise BadSetting("tls", files, f"readable PEM files are needed ({error})") from error
        context.sslsocket_class = _TidySocket
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker; with `auto` MQTT 5 is tried first and 3.1.1 when the broker does not speak it."""

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    version: MqttVersion = "auto"

    def __post_init__(self) -> None:
        if not self.host:
            raise BadSetting("broker host", self.host, "a host name or an IP address")
        if not 0 < self.port < 65536:
            raise BadSetting("broker port", self.port, "1 to 65535")
        if self.version not in ("auto", "3.1.1", "5"):
            raise BadSetting("MQTT version", self.version, "auto, 3.1.1 or 5")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
