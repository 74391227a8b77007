"""TLS: the context that uvicorn answers with, its files looked through before anything starts."""

from __future__ import annotations

import ssl
from pathlib import Path

from anychip.engine.messages import StartError
from anychip.settings import HttpSettings, user_path

_CERTIFICATE, _KEY = "-----BEGIN CERTIFICATE-----", "PRIVATE KEY-----"


def open_tls(config: HttpSettings) -> ssl.SSLContext | None:
    """TLS as configured, None where it is not. StartError names the flag and the file.

    With --ssl-ca-certs a client must bring a certificate that one of them signed.
    """
    if config.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_ca_certs", "ssl_keyfile_password"):
            if getattr(config, name) is not None:
                flag = "--" + name.replace("_", "-")
                raise StartError(f"{flag}: there is no TLS without --ssl-certfile; give both")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(context, config, config.ssl_certfile)
    if config.ssl_ca_certs is not None:
        path = _pem("--ssl-ca-certs", config.ssl_ca_certs, _CERTIFICATE, "certificate")
        try:
            context.load_verify_locations(path)
        except ssl.SSLError as error:
            raise _wrong("--ssl-ca-certs", config.ssl_ca_certs, _told(error)) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_pair(context: ssl.SSLContext, config: HttpSettings, certfile: str) -> None:
    """Certificate and key, which may be in one file."""
    flag, keyfile = "--ssl-keyfile", config.ssl_keyfile
    if keyfile is None:
        flag, keyfile = "--ssl-certfile", certfile
    certificate = _pem("--ssl-certfile", certfile, _CERTIFICATE, "certificate")
    key = _pem(flag, keyfile, _KEY, "private key; name its file with --ssl-keyfile")
    asked = False

    def password() -> str:
        """Without this OpenSSL would ask at the terminal."""
        nonlocal asked
        asked = True
        return config.ssl_keyfile_password or ""

    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _wrong(flag, keyfile, f"is not the key of {certfile}") from error
        if asked and config.ssl_keyfile_password is None:
            raise _wrong(flag, keyfile, "is encrypted; give --ssl-keyfile-password") from error
        if asked:
            raise _wrong("--ssl-keyfile-password", keyfile, "is not opened by it") from error
        raise _wrong("--ssl-certfile", certfile, f"with {keyfile}: {_told(error)}") from error


def _pem(flag: str, name: str, mark: str, what: str) -> Path:
    """The path of a file that can be read and holds `what`."""
    path = user_path(name, flag)
    try:
        text = path.read_text(encoding="latin-1")
    except OSError as error:
        raise _wrong(flag, name, f"cannot be read: {error.strerror}") from error
    if mark not in text:
        raise _wrong(flag, name, f"holds no PEM {what}")
    return path


def _told(error: ssl.SSLError) -> str:
    return f"cannot be used: {error.reason or error}"


def _wrong(flag: str, path: str, text: str) -> StartError:
    return StartError(f"{flag}: {path} {text}")
