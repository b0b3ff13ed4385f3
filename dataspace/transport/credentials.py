"""Credentials: the proof that a client sends to a daemon, and the proof that it requires of the daemon.

A token is text that is in a daemon's configuration, or that was narrowed from such a one (``tokens``).
``Tls`` names the accepted certificates by plain paths, so that it can be sent to another process.

Always: no token is part of a ``repr``; missing credentials come from the environment of this process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dataspace.errors import UsageError
from dataspace.foreign import read_utf8

if TYPE_CHECKING:
    import ssl  # loaded by what uses TLS: most connections do not, and short commands are to start fast
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings for a daemon that listens on ``tls:``; all paths are paths of PEM files.

    ``ca``: authorities that may have signed the daemon's certificate (default: the system's).
    ``certificate`` and ``key``: the client's own, where the daemon requires one (without ``key`` both are in
    the same file).  ``server_name``: the name in the daemon's certificate (default: the host of the URL).
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None

    @classmethod
    def default(cls) -> Self:
        """Returns the settings in ``$DATASPACE_TLS_CA``, ``_CERTIFICATE``, ``_KEY`` and ``_SERVER_NAME``."""
        names = ("CA", "CERTIFICATE", "KEY", "SERVER_NAME")
        return cls(*[os.environ.get(f"DATASPACE_TLS_{name}") or None for name in names])

    def context(self) -> ssl.SSLContext:
        """Returns a context that verifies the daemon; raises ``UsageError`` for files that are no
        certificates."""
        import ssl

        if self.ca is not None and not os.path.isfile(self.ca):
            raise UsageError(f"no file of certificates at {self.ca}")
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"no certificates in {self.ca}: {error}") from None
        if self.certificate is not None:
            load_certificate(context, self.certificate, self.key)
        return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    """Loads a certificate into a context; raises ``UsageError`` that names the wrong file."""
    import ssl

    for path in filter(None, (certificate, key)):
        if not os.access(path, os.R_OK):
            raise UsageError(f"no certificate or key can be read at {path}")
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"{certificate} and {key or certificate} are no certificate and key: {error}"
        ) from None


def default_token() -> str:
    """Returns ``$DATASPACE_TOKEN``, else the content of the file ``$DATASPACE_TOKEN_FILE``, else an empty
    text."""
    token = os.environ.get("DATASPACE_TOKEN")
    if token is not None:
        return token
    path = os.environ.get("DATASPACE_TOKEN_FILE")
    return read_token(path) if path else ""


def read_token(path: str | Path) -> str:
    """Returns the token in a file, without surrounding white space; raises ``UsageError`` where there is
    none."""
    try:
        token = read_utf8(path).strip()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"no token can be read from {path}: {why}") from None
    if not token:
        raise UsageError(f"the token file {path} is empty")
    return token


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of one connection, complete: a token, perhaps empty, and the TLS settings."""

    token: str
    tls: Tls | ssl.SSLContext

    @classmethod
    def complete(cls, token: str | None, tls: Tls | ssl.SSLContext | None) -> Self:
        """Returns the given credentials, completed from the environment."""
        settled = Tls.default() if tls is None else tls
        return cls(default_token() if token is None else token, settled)

    def __repr__(self) -> str:
        return f"Credentials({'a token' if self.token else 'no token'}, {self.tls!r})"

    def context(self) -> ssl.SSLContext:
        """Returns a context to wrap a socket with."""
        return self.tls.context() if isinstance(self.tls, Tls) else self.tls

    def server_name(self, host: str) -> str:
        """Returns the name that the certificate of a daemon at this host must have."""
        return (self.tls.server_name if isinstance(self.tls, Tls) else None) or host


def said_by_tls(error: ssl.SSLError) -> str:
    """Returns the reason of a TLS error as text for a message."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"cannot verify the daemon's certificate: {error.verify_message}"
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "the other side does not speak it (tcp:// is without)"
    return (error.reason or str(error)).lower().replace("_", " ")
