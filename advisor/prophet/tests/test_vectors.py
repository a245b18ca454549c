"""Plays testdata/advice/advisor.json: see the README beside it."""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.conftest import REPOSITORY, Played, ask, configured, seasonal
from weir_advisor.advisor import Advisor
from weir_advisor.config import Config, duration, parse
from weir_advisor.demand import Queries
from weir_advisor.forecast import Fit, Forecaster
from weir_advisor.service import Service

VECTORS = json.loads((REPOSITORY / "testdata/advice/advisor.json").read_text())


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Noise:
    """The noise of variance 1 that is the same in each language."""

    def __init__(self, seed: int) -> None:
        self.x = seed

    def __call__(self) -> float:
        total = 0.0
        for _ in range(12):
            self.x = 48271 * self.x % (2**31 - 1)
            total += self.x / (2**31 - 1)
        return total - 6


def points(case: dict[str, Any]) -> dict[int, float]:
    """The demand of a case by Unix time, without the gaps."""
    step = int(duration(case["config"]["step"]).total_seconds())
    count = int(duration(case["config"]["history"]).total_seconds()) // step
    start = int(unix(case["now"])) - (count - 1) * step
    noises = [Noise(term[kind]["seed"]) for term in case["demand"] for kind in term if kind in ("noise", "walk")]
    walked = [0.0] * len(noises)
    found: dict[int, float] = {}
    for i in range(count):
        t, y, gap, noise = start + i * step, 0.0, False, 0
        for term in case["demand"]:
            ((kind, said),) = term.items()
            if kind == "level":
                y += said
            elif kind == "sine":
                y += said["amplitude"] * math.sin(2 * math.pi * t / duration(said["period"]).total_seconds())
            elif kind == "trend":
                y += said["per_day"] * i * step / 86_400
            elif kind in ("noise", "walk"):
                g = noises[noise]()
                walked[noise] += g
                y += said["deviation"] * (g if kind == "noise" else walked[noise])
                noise += 1
            elif kind == "jump":
                y += said["by"] if t >= unix(said["from"]) else 0
            elif kind == "gap":
                gap = gap or unix(said["from"]) <= t < unix(said["to"])
            else:
                raise ValueError(kind)
        if not gap:
            found[t] = max(y, 0.0)
    return found


class Case:
    """A case of series, with its source and configuration."""

    def __init__(self, case: dict[str, Any], model: str) -> None:
        text = {"prometheus": {"url": "http://127.0.0.1:9"}, "model": model, **case["config"], "rules": [case["rule"]]}
        self.config: Config = parse(yaml.safe_dump(text))
        demand = points(case)
        self.known = [round(y, 2) for y in list(demand.values())[:3]]
        keys = case.get("keys")
        values: dict[str, float] = {}
        if keys:
            q = Queries.of(self.config.rules[0], self.config)
            values = {
                q.now_active: keys["now"]["active"],
                q.usual_active: keys["usual"]["active"],
                q.now_share: keys["now"]["top_ten_share"],
                q.usual_share: keys["usual"]["top_ten_share"],
                q.now_tail: keys["demand_10s"]["now_p99.9"],
                q.usual_tail: keys["demand_10s"]["p99.9"],
                q.usual_most: keys["demand_10s"]["p90"],
            }
        if self.config.pressure and "pressure" in case:
            values[self.config.pressure.query] = case["pressure"]
        self.source = Played(lambda time: demand.get(int(time), math.nan), values)


@pytest.fixture(scope="module")
def fits() -> dict[str, Fit]:
    """The fits of series that several cases have."""
    return {}


@pytest.mark.parametrize("case", VECTORS["series"], ids=lambda case: case["title"])
def test_series(case: dict[str, Any], model: str, fits: dict[str, Fit], monkeypatch: pytest.MonkeyPatch) -> None:
    played, want = Case(case, model), case["want"]
    assert played.known == case.get("begins", played.known)

    def fit(self: Forecaster, past: pd.Series[float], now: float, really: Any = Forecaster.fit) -> Fit:
        name = self.shape + str(pd.util.hash_pandas_object(past).sum())
        if name not in fits:
            fits[name] = really(self, past, now)
        return fits[name]

    monkeypatch.setattr(Forecaster, "fit", fit)
    published, outcomes = Advisor(played.config, played.source, keeps=False).turn(unix(case["now"]))
    document = json.loads(published.body)
    assert [outcomes[0].advised] * len(document["rules"]) == document["rules"]
    rule = played.config.rules[0]
    advised: dict[str, Any] = outcomes[0].advised or {}
    if "limit" in advised:
        assert rule.least.requests <= advised["limit"]["requests"] <= rule.ceiling.requests
        assert rule.lower or advised["limit"]["requests"] >= rule.limit.requests
        assert advised["forecast"]["lower"] <= advised["forecast"]["mean"] <= advised["forecast"]["upper"]
    for name, wanted in want.items():
        said = f"{outcomes[0]}"
        if name == "abstains":
            assert not advised, said
        elif name == "reason":
            assert outcomes[0].why == wanted, said
        elif name == "limit":
            assert wanted["at_least"] <= advised["limit"]["requests"] <= wanted["at_most"], said
        elif name == "skill_at_least":
            assert document["model"]["skill_vs_last"] >= wanted, said
        elif name == "forecast":
            assert wanted["mean_at_least"] <= advised["forecast"]["mean"] <= wanted["mean_at_most"], said
        elif name == "above" and wanted is None:
            assert "above" not in advised, said
        elif name == "above":
            above = advised["above"]
            number, period = above["limit"].split("/")
            assert wanted["requests_per_second"]["at_least"] <= above["requests_per_second"] <= wanted["requests_per_second"]["at_most"]
            assert wanted["limit_per_second"]["at_least"] <= int(number) / duration(period).total_seconds() <= wanted["limit_per_second"]["at_most"]
            assert above["for"] == wanted["for"]
        else:
            raise ValueError(name)


def pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("case", VECTORS["http"], ids=lambda case: case["title"])
def test_http(case: dict[str, Any], model: str, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"model": model, "fleet": case.get("fleet", "shop"), "token": case.get("token", "")}
    key = Ed25519PrivateKey.generate()
    if case.get("signs"):
        (tmp_path / "advisor.key").write_bytes(pem(key))
        fields["private_key"] = "advisor.key"
    config = configured(tmp_path, **fields)
    source = Played(seasonal)
    source.demand = lambda time: math.nan  # no data: a document without rules
    service = Service(config, source)
    if case.get("computed", True):
        service.turn()
    published = service.state.published
    known = {"{config}": service._digest, "{etag}": published.etag if published else ""}

    def filled(text: str) -> str:
        for name, value in known.items():
            text = text.replace(name, value)
        return text

    request, want = case["request"], case["want"]
    headers = {name: filled(value) for name, value in request["headers"].items()}
    answer = ask(service, request["path"], headers, request.get("method", "GET"))
    assert answer.status_code == want["status"], answer.text
    for name, value in want.get("headers", {}).items():
        if value == "{signature}":
            kind, _, signature = answer.headers[name].partition("=")
            assert kind == "ed25519"
            key.public_key().verify(base64.b64decode(signature, validate=True), answer.content)
        elif value == "{seconds}":
            assert int(answer.headers[name]) > 0
        else:
            assert answer.headers[name] == filled(value)
    for name in want.get("absent", []):
        assert name not in answer.headers
    for name, value in want.get("body", {}).items():
        assert answer.json()[name] == filled(value)
    if want["status"] == 304:
        assert answer.content == b""
