"""TLS: a self-signed authority, clients with and without certificates, and files that are wrong."""

from __future__ import annotations

import ssl

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from anychip.config import ServeConfig
from anychip.engine.messages import StartError
from anychip.http.tls import open_tls
from served import config_for, running

PASSWORD = "open sesame"


class Pki:
    """An authority, a server's certificate and a client's, as files."""

    def __init__(self, folder):
        self.authority, self.folder = trustme.CA(), folder
        server = self.authority.issue_cert("localhost", "127.0.0.1")
        client = self.authority.issue_cert("a.client")
        key = server.private_key_pem.bytes()
        self.ca = self._write("ca.pem", self.authority.cert_pem.bytes())
        self.cert = self._write("server.pem", server.cert_chain_pems[0].bytes())
        self.key = self._write("server.key", key)
        self.both = self._write("both.pem", server.private_key_and_cert_chain_pem.bytes())
        self.client = self._write("client.pem", client.private_key_and_cert_chain_pem.bytes())
        self.other_key = self._write("other.key", client.private_key_pem.bytes())
        locked = load_pem_private_key(key, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
        )
        self.locked = self._write("locked.key", locked)
        self.junk = self._write("junk.pem", b"-----BEGIN CERTIFICATE-----\njunk\n")
        self.empty = self._write("empty.pem", b"")

    def _write(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def trust(self):
        context = ssl.create_default_context(cafile=self.ca)
        return context


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


def test_https_is_answered_and_plain_http_is_not(folder, pki):
    config = config_for(folder, ssl_certfile=pki.cert, ssl_keyfile=pki.key)
    with running(config) as server:
        assert server.url.startswith("https://127.0.0.1:")
        body = {"prompt": "abc", "max_tokens": 3, "stream": True}
        with httpx.Client(base_url=server.url, verify=pki.trust()) as http:
            told = http.post("/v1/completions", json=body).text
            assert '"text":"d"' in told and told.endswith("[DONE]\n\n")
            shown = http.get("/server_info").json()["config"]
            assert shown["ssl_certfile"] == pki.cert and shown["ssl_keyfile_password"] is None
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(server.url + "/health")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(server.url.replace("https", "http") + "/health")


def test_clients_must_bring_a_certificate_of_the_authority(folder, pki):
    config = config_for(
        folder,
        ssl_certfile=pki.cert,
        ssl_keyfile=pki.locked,
        ssl_keyfile_password=PASSWORD,
        ssl_ca_certs=pki.ca,
    )
    with running(config) as server:
        known = pki.trust()
        known.load_cert_chain(pki.client)
        with httpx.Client(base_url=server.url, verify=known) as http:
            assert http.get("/health").status_code == 200
            assert PASSWORD not in http.get("/server_info").text
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url + "/health", verify=pki.trust())


def test_certificate_and_key_may_be_one_file(pki):
    assert open_tls(ServeConfig(ssl_certfile=pki.both)).verify_mode is ssl.CERT_NONE


def test_there_is_none_by_default():
    assert open_tls(ServeConfig()) is None


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"ssl_keyfile": "key"}, "--ssl-keyfile: there is no TLS without --ssl-certfile"),
        ({"ssl_ca_certs": "ca"}, "--ssl-ca-certs: there is no TLS without"),
        ({"ssl_certfile": "/none"}, "--ssl-certfile: /none cannot be read: No such file"),
        ({"ssl_certfile": "/"}, "--ssl-certfile: / cannot be read: Is a directory"),
        ({"ssl_certfile": "cert"}, "--ssl-certfile: {cert} holds no PEM private key; name its"),
        ({"ssl_certfile": "empty"}, "--ssl-certfile: {empty} holds no PEM certificate"),
        ({"ssl_certfile": "key", "ssl_keyfile": "cert"}, "--ssl-certfile: {key} holds no PEM cert"),
        ({"ssl_certfile": "junk", "ssl_keyfile": "key"}, "--ssl-certfile: {junk} with {key}"),
        ({"ssl_certfile": "cert", "ssl_keyfile": "/none"}, "--ssl-keyfile: /none cannot be read"),
        ({"ssl_certfile": "cert", "ssl_keyfile": "ca"}, "--ssl-keyfile: {ca} holds no PEM private"),
        (
            {"ssl_certfile": "cert", "ssl_keyfile": "other_key"},
            "--ssl-keyfile: {other_key} is not the key of {cert}",
        ),
        (
            {"ssl_certfile": "cert", "ssl_keyfile": "locked"},
            "--ssl-keyfile: {locked} is encrypted; give --ssl-keyfile-password",
        ),
        (
            {"ssl_certfile": "cert", "ssl_keyfile": "locked", "ssl_keyfile_password": "wrong"},
            "--ssl-keyfile-password: {locked} is not opened by it",
        ),
        ({"ssl_certfile": "both", "ssl_ca_certs": "/none"}, "--ssl-ca-certs: /none cannot be read"),
        ({"ssl_certfile": "both", "ssl_ca_certs": "junk"}, "--ssl-ca-certs: {junk} cannot be used"),
        ({"ssl_certfile": "both", "ssl_ca_certs": "key"}, "--ssl-ca-certs: {key} holds no PEM"),
    ],
)
def test_wrong_files_are_refused_by_name(pki, files, told):
    paths = {flag: getattr(pki, name, name) for flag, name in files.items()}
    with pytest.raises(StartError) as caught:
        open_tls(ServeConfig(**paths))
    assert told.format(**vars(pki)) in str(caught.value)
    assert "wrong" not in str(caught.value)
