"""Which format a client gets by its headers."""

import pytest

from exporters.encoder import Format
from exporters.negotiation import accepts_gzip, choose_format

OM, TEXT = Format.OPENMETRICS, Format.TEXT
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROTOBUF_FIRST = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", TEXT),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", TEXT),
        (PROMETHEUS_2, OM),
        (PROMETHEUS_3, OM),
        (PROTOBUF_FIRST, TEXT),
        ("application/openmetrics-text", OM),
        ("Application/OpenMetrics-Text; Version=1.0.0", OM),
        ('application/openmetrics-text; version="1.0.0"', OM),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;version=2.0.0,application/openmetrics-text;version=1.0.0;q=0.1", OM),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.7", TEXT),
        ("application/openmetrics-text;q=0.7,text/plain;q=0.3", OM),
        ("application/openmetrics-text;q=0.2,text/plain;q=0,*/*;q=0.9", OM),
        ("application/openmetrics-text;q=0.2,text/*;q=0.5", TEXT),
        ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=much", OM),
        ("application/json", TEXT),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, chosen: Format) -> None:
    assert choose_format(accept) is chosen


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        *((each, True) for each in ("gzip", "GZIP", "x-gzip", "gzip, deflate, br", "deflate, gzip;q=0.5", "*")),
        *((each, False) for each in ("", "gzip;q=0", "gzip; q=0.000", "gzip;q=0, *", "*;q=0", "identity", "br")),
    ],
)
def test_gzip_is_used_when_it_is_accepted(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
