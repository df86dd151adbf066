"""Until when certificates are valid: what OpenSSL writes, and what is no certificate at all."""

import base64
from datetime import datetime, timedelta, timezone

import pytest
import trustme

from agent.lib.certificates import first_expiry


def issued(expires: datetime) -> bytes:
    return trustme.CA().issue_cert("node", not_after=expires).cert_chain_pems[0].bytes()


def test_both_forms_of_a_time_are_read_and_the_first_of_a_chain_counts() -> None:
    for year in (2049, 2050, 2100):
        expires = datetime(year, 12, 31, 23, 59, 58, tzinfo=timezone.utc)
        assert first_expiry(issued(expires)) == expires.timestamp()
    now = datetime(2030, 1, 1, tzinfo=timezone.utc)
    chain = [issued(now + timedelta(days=days)) for days in (30, 10, 20)]
    assert first_expiry(b"text before\n".join(chain)) == (now + timedelta(days=10)).timestamp()


@pytest.mark.parametrize(
    "content",
    [b"", b"0", b"0\x00", b"0\x020\x00", b"0\x85\xff\xff\xff\xff\xff", b"0\x02\xa0\x00", b"0\x0c0\x0a" + b"0\x00" * 5],
)
def test_what_is_no_certificate_has_no_date(content: bytes) -> None:
    pem = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(content) + b"\n-----END CERTIFICATE-----\n"
    assert first_expiry(pem) is None
    assert first_expiry(pem + issued(datetime(2030, 1, 1, tzinfo=timezone.utc))) is not None
    assert first_expiry(content) is None
