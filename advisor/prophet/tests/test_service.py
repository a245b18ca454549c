from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Played, ask, configured, seasonal
from weir_advisor.advisor import Advisor
from weir_advisor.config import Config
from weir_advisor.demand import Keys, Queries, lacking
from weir_advisor.forecast import Fit, Forecaster
from weir_advisor.prometheus import SourceError
from weir_advisor.service import Service

NOW = 1_700_006_400.0


def nothing(time: float) -> float:
    return math.nan


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def test_after_an_error_the_next_turn_comes_soon(tmp_path: Path) -> None:
    source, clock = Played(nothing), Clock()
    service = Service(configured(tmp_path, interval="15m", expires="1h"), source, clock)
    source.down = True
    service.turn()
    assert service.pause() == 30
    clock.now += 890 - clock.now % 900
    assert service.pause() == 10
    source.down = False
    service.turn()
    clock.now += 100
    assert service.pause() == 810


def test_a_failed_turn_keeps_the_document_until_it_expires(tmp_path: Path) -> None:
    source, clock = Played(nothing), Clock()
    service = Service(configured(tmp_path), source, clock)
    assert ask(service, "/healthz").json() == {"status": "unavailable", "computed": None, "serial": 0, "error": ""}
    service.turn()
    first = ask(service, "/v1/advice").content
    assert ask(service, "/healthz").json() == {
        "status": "ok",
        "computed": "2023-11-15T00:00:00.000Z",
        "serial": int(NOW * 1000),
        "error": "",
    }
    source.down = True
    assert json.loads(first)["abstained"] == [{"rule": "api", "reason": "history"}]
    clock.now += 60
    service.turn()
    assert ask(service, "/v1/advice").content == first
    assert ask(service, "/v1/advice", {"If-None-Match": "*"}).status_code == 304
    health = ask(service, "/healthz")
    assert (health.status_code, health.json()["status"], health.json()["error"]) == (200, "failing", "Prometheus is away")
    clock.now += 540
    assert ask(service, "/v1/advice").status_code == 503
    assert ask(service, "/healthz").status_code == 503
    source.down = False
    service.turn()
    assert json.loads(ask(service, "/v1/advice").content)["serial"] == int(clock.now * 1000)
    text = ask(service, "/metrics").text
    assert 'weir_advisor_computations_total{outcome="error"} 1.0' in text
    assert 'weir_advisor_abstains{reason="history",rule="api"} 1.0' in text
    assert 'weir_advisor_requests_total{status="503"} 1.0' in text


def test_the_token_is_a_bearer_token(tmp_path: Path) -> None:
    service = Service(configured(tmp_path, token="s3cret"), Played(nothing), Clock())
    service.turn()
    statuses = [
        ask(service, "/v1/advice", {"Authorization": a}).status_code for a in ("bearer s3cret", "Basic s3cret", "s3cret", "Bearer ", "Bearer s3cre")
    ]
    assert statuses == [200, 401, 401, 401, 401]


def test_an_unexpected_error_ends_no_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(configured(tmp_path), Played(nothing), Clock())
    monkeypatch.setattr(Advisor, "turn", lambda *_: 1 / 0)
    service.turn()
    assert service.state.error == "division by zero"


def test_one_rule_that_cannot_be_read_does_not_hold_up_the_others(tmp_path: Path) -> None:
    rules = [{"rule": name, "limit": "60/1m", "floor": "60/1m", "ceiling": "90/1m", "query": name} for name in ("a", "b")]

    class Half(Played):
        def series(self, query: str, start: int, end: int, step: int):  # type: ignore[no-untyped-def]
            self.down = query.startswith("(a)")
            return super().series(query, start, end, step)

    _, outcomes = Advisor(configured(tmp_path, rules=rules), Half(nothing)).turn(NOW)
    assert [(o.rule, o.why) for o in outcomes] == [("a", "source"), ("b", "history")]


def test_serials_rise_over_restarts_even_if_the_clock_steps_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configured(tmp_path)
    advisor = Advisor(config, Played(nothing))
    serials = [advisor.turn(NOW)[0].serial, advisor.turn(NOW)[0].serial]
    serials.append(Advisor(config, Played(nothing)).turn(NOW - 3600)[0].serial)
    assert serials == [int(NOW * 1000), int(NOW * 1000) + 1, int(NOW * 1000) + 2]
    (tmp_path / "advisor-state/serial").write_text("x")
    with caplog.at_level(logging.WARNING):
        assert Advisor(config, Played(nothing)).turn(NOW + 1)[0].serial == int(NOW * 1000) + 1000
    assert "serials go on from the clock" in caplog.text


def test_models_survive_a_restart_and_are_fitted_anew_when_they_are_old(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fitted: list[float] = []
    really = Forecaster.fit

    def fit(self: Forecaster, past, now: float):  # type: ignore[no-untyped-def]
        fitted.append(now)
        return really(self, past, now)

    monkeypatch.setattr(Forecaster, "fit", fit)
    config = configured(tmp_path, rule={"rule": "shop/login"}, model=model)
    first, outcomes = Advisor(config, Played(seasonal)).turn(NOW)
    assert outcomes[0].why == ""
    again = Advisor(config, Played(seasonal))
    assert json.loads(again.turn(NOW)[0].body)["rules"] == json.loads(first.body)["rules"]
    again.turn(NOW + 3599)
    assert fitted == [NOW]
    file = tmp_path / "advisor-state/shop%2Flogin.model.json"
    whole = file.read_text()
    for broken in (whole[:-100], whole.replace('"k":', '"q":').replace('"weights":', '"height":')):
        file.write_text(broken)
        with caplog.at_level(logging.WARNING):
            after = Advisor(config, Played(seasonal))
        assert "the model of rule 'shop/login' is broken, and fitted anew" in caplog.text
        caplog.clear()

    def failing(self: Forecaster, past: object, now: float) -> None:
        fitted.append(now)
        raise ZeroDivisionError

    monkeypatch.setattr(Forecaster, "fit", failing)
    for each, now in ((after, NOW + 1), (again, NOW + 3600)):
        assert [outcome.why for outcome in each.turn(now)[1]] == ["skill"]
        assert "ZeroDivisionError" in each.trouble[0]
    assert fitted == [NOW, NOW + 1, NOW + 3600]


def test_of_many_models_only_some_are_fitted_anew_in_a_turn(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [{"rule": f"r{i}", "limit": "60/1m", "ceiling": "90/1m"} for i in range(6)]
    advisor = Advisor(configured(tmp_path, rules=rules, model=model, prophet={"refit": "3m"}), Played(seasonal))
    fitted: list[float] = []
    really = Forecaster.fit(advisor._forecaster, Played(seasonal).series("", int(NOW) - 575 * 900, int(NOW), 900), NOW)

    def fit(self: Forecaster, past: object, now: float) -> Fit:
        fitted.append(now)
        return replace(really, fitted_at=now)

    monkeypatch.setattr(Forecaster, "fit", fit)
    for minute in (0, 2, 3, 4, 5, 6):
        advisor.turn(NOW + 60 * minute)
    assert [fitted.count(NOW + 60 * minute) for minute in (0, 2, 3, 4, 5, 6)] == [6, 0, 2, 2, 2, 2]


def test_a_state_that_cannot_be_written_is_told_and_advice_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    advisor = Advisor(configured(tmp_path), Played(nothing))
    (tmp_path / "advisor-state").rmdir()
    advisor.turn(NOW)
    assert "the serial is not kept" in caplog.text


def test_a_series_of_no_use_says_why() -> None:
    config = configured()
    for know, want in (
        (lambda hours: True, ""),
        (lambda hours: False, "history"),
        (lambda hours: hours < 48, ""),
        (lambda hours: hours < 47.5, "history"),
        (lambda hours: hours < 48 and not 20 < hours < 26, "gaps"),
        (lambda hours: hours >= 1, ""),  # hours before now
        (lambda hours: hours > 1, "outdated"),
    ):
        past = Played(lambda time, know=know: 1.0 if know((NOW - time) / 3600) else math.nan).series("", int(NOW) - 575 * 900, int(NOW), 900)  # type: ignore[misc]
        assert lacking(past, config) == want


def test_a_crowd_is_no_abuse() -> None:
    few = Keys(now_active=103, usual_active=100, now_share=0.84, usual_share=0.2, now_tail=180, usual_tail=20)
    many = Keys(now_active=500, usual_active=100, now_share=0.06, usual_share=0.2, now_tail=20, usual_tail=20)
    spread = Keys(now_active=103, usual_active=100, now_share=0.2, usual_share=0.2, now_tail=180, usual_tail=20)
    both = Keys(now_active=500, usual_active=100, now_share=0.84, usual_share=0.2, now_tail=180, usual_tail=20)
    assert [(keys.abuse(), keys.crowd()) for keys in (few, many, spread, both, Keys())] == [
        (True, False),
        (False, True),
        (False, False),
        (True, False),
        (False, False),
    ]


def test_a_crowd_is_advised_more_with_its_reason(model: str, tmp_path: Path) -> None:
    def jump(time: float) -> float:
        return seasonal(time) + (60 if time >= NOW - 1800 else 0)

    config = configured(tmp_path, rule={"demand": "total", "abuse": True}, minimum_skill=0, model=model)
    queries = Queries.of(config.rules[0], config)
    values = {queries.now_active: 500, queries.usual_active: 100.0, queries.now_share: 0.06, queries.usual_share: 0.2}
    _, outcomes = Advisor(config, Played(jump, values)).turn(NOW)
    assert outcomes[0].advised
    assert outcomes[0].advised["reason"] == "crowd"


def queries(rule: dict[str, object]) -> Queries:
    config: Config = configured(rule=rule, prometheus={"url": "http://127.0.0.1:9", "selector": 'job="caddy"'})
    return Queries.of(config.rules[0], config)


def test_queries_ask_for_what_metrics_have() -> None:
    asked = queries({"rule": "shop/login", "quantile": 0.9})
    assert asked.demand == ('histogram_quantile(0.9, sum by (le) (rate(weir_key_demand_bucket{rule="shop/login",job="caddy"}[900s]))) * 6')
    assert asked.usual_share == 'quantile_over_time(0.99, (max(weir_top_keys_share{rule="shop/login",job="caddy",keys="10"}))[518400s:900s])'
    assert queries({"demand": "total"}).demand == '(sum(rate(weir_requests_total{rule="api",job="caddy"}[900s]))) * 60'
    assert queries({"query": "x or y"}).demand == "(x or y) * 60"


def test_a_source_that_is_away_at_first_is_an_error(tmp_path: Path) -> None:
    source = Played(nothing)
    source.down = True
    with pytest.raises(SourceError):
        Advisor(configured(tmp_path), source).turn(NOW)


def test_pressure_that_cannot_be_read_is_told_and_has_no_effect(tmp_path: Path, model: str, caplog: pytest.LogCaptureFixture) -> None:
    class Silent(Played):
        def value(self, query: str, at: float) -> float | None:
            raise SourceError(f"{query}: no answer")

    config = configured(tmp_path, model=model, pressure={"query": "max(cpu)"})
    advisor = Advisor(config, Silent(seasonal), keeps=False)
    _, outcomes = advisor.turn(NOW)
    assert outcomes[0].advised
    assert "limit" in outcomes[0].advised
    assert advisor.trouble == ["the pressure is not known, and has no effect: max(cpu): no answer"]
    assert advisor.trouble[0] in caplog.text
    nobody = Advisor(config, Played(seasonal), keeps=False)
    nobody.turn(NOW)
    assert nobody.trouble == ["the pressure is not known, and has no effect: max(cpu): has no series, or no finite value"]
    played = Played(seasonal, {"max(cpu)": 0.9})
    published, outcomes = Advisor(config, played, keeps=False).turn(NOW)
    assert json.loads(published.body)["abstained"] == [{"rule": "api", "reason": "pressure"}]
    played.values["max(cpu)"] = 0.89
    _, again = Advisor(config, played, keeps=False).turn(NOW)
    assert again[0].advised


def test_what_a_turn_does_not_find_out_is_in_the_health(tmp_path: Path, model: str) -> None:
    service = Service(configured(tmp_path, model=model, pressure={"query": "max(cpu)"}), Played(seasonal), clock=lambda: NOW)
    service.turn()
    assert service.state.published
    assert "max(cpu): has no series" in service.state.error


def test_values_of_one_rule_do_not_stop_the_others(tmp_path: Path, model: str) -> None:
    """A query may have values below 0 alone, whose logarithm is that of 0, or what no model takes."""
    config = configured(tmp_path, model=model, rule={"demand": "query", "query": "q"})
    published, outcomes = Advisor(config, Played(lambda _: -1.0), keeps=False).turn(NOW)
    assert [outcome.why for outcome in outcomes] == ["skill"]
    assert json.loads(published.body)["rules"] == []


def test_an_error_of_one_rule_is_its_own(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: object) -> None:
        raise IndexError("nothing there")

    monkeypatch.setattr(Forecaster, "fit", fit)
    advisor = Advisor(configured(tmp_path, model=model), Played(seasonal), keeps=False)
    _, outcomes = advisor.turn(NOW)
    assert [outcome.why for outcome in outcomes] == ["skill"]
    assert advisor.trouble == [f"rule 'api': the model {model} cannot forecast it: IndexError: nothing there"]
