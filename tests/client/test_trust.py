"""Whom a client trusts: the public authorities, except where no address has TLS."""

from __future__ import annotations

import ssl
import warnings

import pytest

from stoker.client.httpx2_adapter import service


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "HTTP://a.example,http://b.example:80"])
def test_no_authority_is_read_for_addresses_without_tls(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the key goes in the clear
        trusted = service(url, "sk_1_2", 1.0, None).verify
    assert isinstance(trusted, ssl.SSLContext)
    assert trusted.cert_store_stats()["x509_ca"] == 0
    assert trusted.verify_mode == ssl.CERT_REQUIRED  # so a connection with TLS would be refused


@pytest.mark.parametrize("url", ["https://a.example", "https://a.example,http://127.0.0.1:1"])
def test_the_public_authorities_are_trusted_where_an_address_has_tls(url: str) -> None:
    assert service(url, "sk_1_2", 1.0, None).verify is True
