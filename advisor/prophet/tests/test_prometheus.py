from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.conftest import Played, configured
from weir_advisor.prometheus import History, Prometheus, SourceError


@contextmanager
def answering(answer: Any) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that answers each request by a function of its fields: (status, body)."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            fields = {k: v[0] for k, v in parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()).items()}
            asked.append({**fields, "path": self.path, "authorization": self.headers.get("Authorization", "")})
            status, body = answer(fields)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def matrix(*values: list[Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": v} for v in values]}}


def test_gaps_are_nan_and_empty_histograms_are_zero() -> None:
    with answering(lambda _: (200, matrix([[100, "1.5"], [120, "NaN"], [130, "+Inf"]]))) as (url, asked):
        source = Prometheus(configured(prometheus={"url": url, "token": "s3cret"}))
        found = source.series("up", 100, 140, 10)
        source.close()
    assert [None if math.isnan(v) else v for v in found] == [1.5, None, 0, None, None]
    assert found.index[0].timestamp() == 100
    assert asked[0]["authorization"] == "Bearer s3cret"
    assert asked[0]["path"] == "/api/v1/query_range"


def test_values_of_other_times_are_ignored() -> None:
    with answering(lambda _: (200, matrix([[90, "7"], [100, "1"], [1e18, "7"], [-1e18, "7"]]))) as (url, _):
        found = Prometheus(configured(prometheus={"url": url})).series("up", 100, 120, 10)
    assert [None if math.isnan(v) else v for v in found] == [1, None, None]


def test_a_long_range_is_read_in_parts() -> None:
    with answering(lambda f: (200, matrix([[int(f["start"]), "1"], [int(f["end"]), "2"]]))) as (url, asked):
        found = Prometheus(configured(prometheus={"url": url})).series("up", 0, 14 * 86_400, 60)
    assert [(int(a["start"]), int(a["end"])) for a in asked] == [(0, 659_940), (660_000, 1_209_600)]
    assert len(found) == 20_161
    assert int(found.notna().sum()) == 4


@pytest.mark.parametrize(
    ("status", "body", "want"),
    [
        (400, {"status": "error", "error": "parse error"}, "Prometheus answers 400: parse error"),
        (200, matrix([[100, "1"]], [[100, "2"]]), "up: has 2 series; a query must have one"),
        (200, b"<html>", "does not answer as Prometheus does"),
        (200, {"status": "success"}, "does not answer as Prometheus does"),
        (200, [], "does not answer as Prometheus does"),
        (200, {"status": "success", "data": {"resultType": "matrix", "result": [{}]}}, "does not answer as Prometheus does"),
        (200, matrix([[100, "many"]]), "does not answer as Prometheus does"),
        (200, matrix([[100]]), "does not answer as Prometheus does"),
        (302, {}, "Prometheus answers 302"),
    ],
)
def test_an_error_says_what_prometheus_did(status: int, body: Any, want: str) -> None:
    with answering(lambda _: (status, body)) as (url, _), pytest.raises(SourceError, match=want):
        Prometheus(configured(prometheus={"url": url})).series("up", 100, 140, 10)


def test_an_unreachable_prometheus_is_an_error() -> None:
    with pytest.raises(SourceError, match="Prometheus at http://127.0.0.1:9/api/v1/"):
        Prometheus(configured()).value("up", 0)


def test_a_value_is_read() -> None:
    answers = iter(
        [
            {"resultType": "vector", "result": [{"metric": {}, "value": [100, "3"]}]},
            {"resultType": "vector", "result": []},
            {"resultType": "scalar", "result": [100, "4"]},
        ]
    )
    with answering(lambda _: (200, {"status": "success", "data": next(answers)})) as (url, _):
        source = Prometheus(configured(prometheus={"url": url}))
        assert [source.value("up", 100) for _ in range(3)] == [3, None, 4]


def test_a_history_fetches_only_what_is_new() -> None:
    source = Played(lambda time: time)
    history = History(source, "up", 1000, 10)
    first = history.read(5005)
    assert (first.index[0].timestamp(), first.index[-1].timestamp(), len(first)) == (4010, 5000, 100)
    second = history.read(5021)
    assert list(second) == [float(t) for t in range(4030, 5021, 10)]
    assert source.asked == [(4010, 5000), (4960, 5020)]
    assert list(history.read(9000)) == [float(t) for t in range(8010, 9001, 10)]  # nothing is left of what was known
    assert list(history.read(5021)) == list(second)  # and the clock may step back
    assert source.asked[2:] == [(8010, 9000), (4030, 5020)]
