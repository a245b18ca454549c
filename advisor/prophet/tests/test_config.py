from __future__ import annotations

import json
import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, configured
from weir_advisor.config import PROPHETS_OWN, ConfigError, Limit, ProphetConfig, duration, limit, load, parse

WHOLE = """\
listen: 127.0.0.1:8787
fleet: shop
token: "${A_TOKEN}"
private_key: advisor.key
tls: {certificate: a.pem, key: a.key, client_ca: ca.pem}
prometheus: {url: http://127.0.0.1:9090/, token: t, selector: 'job="caddy"', timeout: 10s}
history: 14d
step: 1m
season: 24h
horizon: 10m
interval: 1m
expires: 10m
minimum_skill: 0.05
prophet:
  holidays: [{name: sale, dates: [2026-11-27], lower_window: 0, upper_window: 1}]
  country: DE
  changepoint_prior_scale: 0.1
rules:
  - rule: api
    limit: 100/1m
    algorithm: sliding_window_counter
    burst: 0
    floor: 50/1m
    ceiling: 200/1m
    algorithms: [token_bucket]
    demand: key
    quantile: 0.99
    headroom: 1.2
    abuse: true
"""


def test_all_fields_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "s3cret")
    config = parse(WHOLE)
    assert config.token == "s3cret"
    assert config.prometheus.url == "http://127.0.0.1:9090"
    assert config.history == timedelta(days=14)
    assert config.prophet.holidays[0].dates == (date(2026, 11, 27),)
    assert config.rules[0].ceiling == Limit(200, timedelta(minutes=1))
    assert config.rules[0].abuse
    assert config.rules[0].asks == "key"
    assert parse(WHOLE.replace("demand: key", "query: up")).rules[0].asks == "query"
    assert parse(WHOLE.replace("    floor: 50/1m\n", "")).rules[0].least.requests == 100


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        ("horizon: 10m", "horizn: 10m", "line 10: horizn: unknown field; did you mean horizon?"),
        ("    headroom: 1.2", "    xyzzy: 1", "line 28: rules[0].xyzzy: unknown field; known are rule, limit, "),
        ("country: DE", "countri: DE", "line 16: prophet.countri: unknown field; did you mean country?"),
        ("lower_window: 0", "lower_windw: 0", "line 15: prophet.holidays[0].lower_windw: unknown field; did you mean lower_window?"),
        ("step: 1m", "step: 1min", "line 8: step '1min': must be a duration such as 10s, 5m, 24h or 14d"),
        ("step: 1m", "step: 60", "line 8: step '60': must be a duration"),
        ("step: 1m", "step: 1500ms", "step: must be whole seconds"),
        ("season: 24h", "season: 3m", "season: must be a multiple of step, and at least four of it"),
        ("horizon: 10m", "horizon: 90s", "horizon: must be a multiple of step, and not longer than season"),
        ("demand: key", "demand: up", "line 26: rules[0].demand 'up': must be 'key', 'total' or 'query'"),
        ("demand: key", "demand: query", "rules[0]: query: demand query needs it, and no other has it"),
        ("rule: api", "rule: a b", "line 19: rules[0].rule 'a b': must be a label as metrics have it, such as api or shop/login"),
        (
            "tls: {certificate: a.pem, key: a.key, client_ca: ca.pem}",
            "tls: on",
            "line 5: tls: must be a section with some of the fields certificate, ",
        ),
        ("  - rule: api\n", "  - api\n  - rule: api\n", "line 19: rules[0]: must be a section with some of the fields rule, limit, "),
        ("abuse: true", "query: up", "rules[0]: query: demand query needs it, and no other has it"),
        ("expires: 10m", "expires: 30s", "expires: must not be shorter than interval"),
        ("expires: 10m", "step: 10m", "line 12: step: duplicate field, first in line 8"),
        ("limit: 100/1m", "limit: 100", "line 20: rules[0].limit '100': must be <requests>/<period>, such as 100/1m"),
        ("limit: 100/1m", "limit: 100/2m", "line 19: rules[0]: floor: must have the period of limit"),
        ("limit: 100/1m", "limit: 300/1m", "line 19: rules[0]: floor, limit and ceiling: each must be at least the one before"),
        ("limit: 100/1m", "limit: 100/minute", "its period must be a duration such as 10s or 1m, or day, week or month"),
        ("    limit: 100/1m\n", "", "line 19: rules[0].limit: is missing"),
        ("burst: 0", "burst: 5", "burst: only token_bucket and leaky_bucket have one"),
        ("burst: 0", "burst: many", "line 22: rules[0].burst 'many': must be a valid integer"),
        ("algorithm: sliding_window_counter", "algorithm: window", "line 21: rules[0].algorithm 'window': must be 'token_bucket', "),
        ("headroom: 1.2", "headroom: 0.5", "line 28: rules[0].headroom '0.5': must be greater than or equal to 1"),
        ("abuse: true", "abuse: 1", "line 29: rules[0].abuse '1': must be a valid boolean"),
        ("minimum_skill: 0.05", "minimum_skill: .nan", "line 13: minimum_skill"),
        ("http://127.0.0.1:9090/", "127.0.0.1", "line 6: prometheus.url '127.0.0.1': must be an address such as http://127.0.0.1:9090"),
        ("country: DE", "time_zone: Nowhere/Else", "line 16: prophet.time_zone 'Nowhere/Else': must be a time zone such as"),
        ("country: DE", "country: Germany", "line 16: prophet.country"),
        ('"${A_TOKEN}"', '"${NO_SUCH_NAME}"', "${NO_SUCH_NAME}: the environment has no NO_SUCH_NAME"),
        ("fleet: shop", "token_file: t", "token, token_file: write one of them"),
        ("fleet: shop", "fleet: [", "line 4: expected ',' or ']'"),
        ("fleet: shop", "folder: x", "line 2: folder: unknown field"),
        ("listen: 127.0.0.1:8787", "listen: 8787", "line 1: listen"),
        ("fleet: shop", "model: arima", "line 2: model 'arima': must be 'prophet' or 'ets'"),
        ("fleet: shop", "modl: ets", "line 2: modl: unknown field; did you mean model?"),
        ("fleet: shop", "model: ets", "line 15: prophet.holidays: is of the model prophet alone: remove it, or write model: prophet"),
        ("fleet: shop", "model: ets", "line 17: prophet.changepoint_prior_scale: is of the model prophet alone"),
    ],
)
def test_an_error_says_where_and_what_would_be_right(monkeypatch: pytest.MonkeyPatch, old: str, new: str, want: str) -> None:
    monkeypatch.setenv("A_TOKEN", "s3cret")
    assert WHOLE.count(old) >= 1
    with pytest.raises(ConfigError) as error:
        parse(WHOLE.replace(old, new, 1))
    assert want in str(error.value)
    assert "s3cret" not in str(error.value)


def test_the_pressure_is_read() -> None:
    assert configured().pressure is None
    pressure = configured(pressure={"query": "max(cpu)"}).pressure
    assert pressure is not None
    assert (pressure.query, pressure.high) == ("max(cpu)", 0.9)
    for wrong, want in (
        ({"high": 0.8}, "pressure.query: is missing"),
        ({"query": ""}, "pressure.query"),
        ({"query": "up", "high": 0.0}, "pressure.high '0.0': must be greater than or equal to 0.000001"),
        ({"query": "up", "hihg": 0.8}, "pressure.hihg: unknown field; did you mean high?"),
    ):
        with pytest.raises(ConfigError, match=re.escape(want)):
            configured(pressure=wrong)


def test_ets_takes_what_it_honours() -> None:
    shared = {
        "scale": "linear",
        "fourier_order": 4,
        "weekly": True,
        "time_zone": "Asia/Tokyo",
        "refit": "2h",
        "points": 500,
        "folds": 2,
        "state": "x",
    }
    assert {*shared, *PROPHETS_OWN} == {*ProphetConfig.model_fields}
    assert configured(model="ets", prophet=shared).prophet.folds == 2
    assert configured(prophet={"country": "DE"}).model == "prophet"


def test_all_mistakes_are_said_at_once_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "advisor.yaml"
    file.write_text(
        "prometheus: {url: http://127.0.0.1:9090}\nsteps: 1m\nrules:\n- {rule: a, limit: 5/1m, floor: 5/1m, ceiling: 6/1m, quantile: 2}\n"
    )
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(error.value).splitlines() == [
        f"{file}:line 4: rules[0].quantile '2': must be less than or equal to 0.9999".replace(":line", ": line"),
        f"{file}: line 2: steps: unknown field; did you mean step?",
    ]
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.yaml")


def test_a_rule_twice_is_an_error() -> None:
    rule = {"rule": "api", "limit": "5/1m", "floor": "5/1m", "ceiling": "6/1m"}
    with pytest.raises(ConfigError, match="duplicate rule 'api'"):
        configured(rules=[rule, rule])


@pytest.mark.parametrize(
    ("text", "want"),
    [("90s", 90), ("1h30m", 5400), ("14d", 14 * 86_400), ("1d12h", 129_600), ("0.5h", 1800), ("1.5s", 1.5), ("300us", 0.0003)],
)
def test_durations_are_as_rules_write_them(text: str, want: float) -> None:
    assert duration(text).total_seconds() == want


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m", "5w", "1h2d", None, 5])
def test_other_texts_are_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        duration(text)


@pytest.mark.parametrize("text", ["0/1m", "1e3/1m", "1000000001/1m", "5/", "/1m", "5/400d", "5/100us", 5])
def test_other_texts_are_no_limits(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        limit(text)


def test_the_token_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("s3cret\n")
    assert configured(tmp_path, token_file="t").secret() == "s3cret"
    assert configured(tmp_path, token="u").secret() == "u"


def test_the_digest_is_that_of_the_vectors() -> None:
    cases = json.loads((REPOSITORY / "testdata/advice/digest.json").read_text())["cases"]
    assert len(cases) > 5
    for case in cases:
        config = configured(rules=case["rules"])
        lines = sorted((rule.line() for rule in config.rules), key=lambda line: line.split("\t")[0].encode())
        assert "".join(lines) == case["text"], case["title"]
        from weir_advisor.config import digest

        assert digest(config.rules) == case["digest"], case["title"]
