from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import cmdstanpy
import numpy as np
import pandas as pd
import pytest
from statsmodels.tsa.exponential_smoothing.ets import ETSModel  # type: ignore[import-untyped]

from tests.conftest import Played, configured, seasonal
from weir_advisor import model_ets, models
from weir_advisor.forecast import Fit, Forecaster, TooShort

NOW = 1_700_006_400


@pytest.fixture(scope="module")
def fitted(model: str) -> tuple[Forecaster, Fit, pd.Series[float]]:
    """A forecaster, and its fit to six days that have a season."""
    past = Played(seasonal).series("", NOW - 575 * 900, NOW, 900)
    forecaster = Forecaster(configured(model=model))
    return forecaster, forecaster.fit(past, NOW), past


def test_a_season_is_foreseen(fitted: tuple[Forecaster, Fit, pd.Series[float]]) -> None:
    forecaster, fit, past = fitted
    ahead = forecaster.ahead(fit, past)
    assert [int(at.timestamp()) for at, _ in ahead] == [NOW + 900 * i for i in (1, 2, 3, 4)]
    for at, band in ahead:
        assert band.mean == pytest.approx(seasonal(at.timestamp()), abs=4)
        assert band.lower <= band.mean <= band.upper
        assert band.upper - band.lower < 10
    assert fit.skill_vs_last is not None
    assert fit.skill_vs_last > 0.3
    assert fit.skill_vs_mean is not None
    assert fit.skill_vs_mean > 0.8


TAKEN = {"prophet": 1.0, "ets": 0.5}
"""What one error moves the forecast of the next by: all of it, or with half() the weight α."""


def half(fit: Fit) -> Fit:
    """Returns a fit of which less is left with each step; with ets, a half of an error is taken into the level, and nothing into the trend."""
    model = fit.model
    if isinstance(model, model_ets._Model):
        model = dataclasses.replace(model, weights=(0.5, 0.0, 0.98))
    return dataclasses.replace(fit, model=model, lasts=[1.0, 0.5, 0.25, 0.0])


def test_a_fit_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = list(Path(cmdstanpy._TMPDIR).iterdir())
    Forecaster(configured())._maker.fit(Played(seasonal).series("", NOW - 200 * 900, NOW, 900))
    assert list(tmp_path.iterdir()) == []
    assert list(Path(cmdstanpy._TMPDIR).iterdir()) == before


def test_the_present_error_lasts_as_it_did_before(fitted: tuple[Forecaster, Fit, pd.Series[float]]) -> None:
    forecaster, fit, past = fitted
    fit = half(fit)
    c = fit.shift
    risen = past.copy()
    risen.iloc[-1] = 1.5 * (past.iloc[-1] + c) - c
    factors = [(b.mean + c) / (a.mean + c) for (_, a), (_, b) in zip(forecaster.ahead(fit, past), forecaster.ahead(fit, risen), strict=True)]
    assert factors == pytest.approx([1.5 ** (TAKEN[forecaster.model] * last) for last in fit.lasts])
    assert forecaster.expected(fit, past.index[-1]).upper < risen.iloc[-1]


def test_on_the_linear_scale_errors_add_and_no_forecast_is_below_zero(model: str) -> None:
    past = Played(seasonal).series("", NOW - 575 * 900, NOW, 900)
    forecaster = Forecaster(configured(model=model, prophet={"scale": "linear"}))
    fit = half(forecaster.fit(past, NOW))
    risen, fallen = past.copy(), past.copy()
    risen.iloc[-1] += 40
    fallen.iloc[-1] -= 1000
    differences = [b.mean - a.mean for (_, a), (_, b) in zip(forecaster.ahead(fit, past), forecaster.ahead(fit, risen), strict=True)]
    assert differences == pytest.approx([TAKEN[model] * 40 * last for last in fit.lasts])
    assert [(band.lower, band.mean) for _, band in forecaster.ahead(fit, fallen)][:3] == [(0.0, 0.0)] * 3


def test_how_long_errors_last_is_a_regression() -> None:
    rng = np.random.default_rng(1)
    r = np.zeros(4000)
    for i in range(1, len(r)):
        r[i] = 0.9 * r[i - 1] + rng.normal()
    for regress in (models.least_squares, models.least_absolute):
        assert regress(r[:-1], r[1:]) == pytest.approx(0.9, abs=0.03)
        assert regress(r[:-5], r[5:]) == pytest.approx(0.9**5, abs=0.08)
        assert regress(rng.normal(size=4000), rng.normal(size=4000)) == pytest.approx(0, abs=0.06)
        assert regress(np.zeros(50), np.ones(50)) == 0
        assert regress(r, 2 * r) == 1
        assert regress(r, -r) == 0
    said, came = np.array([1.0, 2.0, 3.0, 0.0, 100.0]), np.array([0.5, 1.0, 1.5, 7.0, 90.0])
    assert models.least_absolute(said, came) == 0.9  # by hand: 100 of 106 have the ratio 0.9
    assert models.least_absolute(said[:4], came[:4]) == 0.5


def test_a_regression_by_least_absolute_errors_has_the_least() -> None:
    rng = np.random.default_rng(2)
    said = rng.normal(size=501)
    came = 0.4 * said + 0.1 * rng.standard_cauchy(size=501)
    phi = models.least_absolute(said, came)
    least = min((float(np.abs(came - each * said).sum()), each) for each in np.linspace(0, 1, 1001))
    assert phi == pytest.approx(least[1], abs=0.001)


def test_gaps_take_no_part_in_what_is_learnt(model: str) -> None:
    past = Played(seasonal).series("", NOW - 575 * 900, NOW, 900)
    past.iloc[400:420] = math.nan
    past.iloc[500] = math.nan
    fit = Forecaster(configured(model=model)).fit(past, NOW)
    numbers = [*fit.lasts, *fit.low, *fit.high, fit.usual_low, fit.usual_high, fit.skill_vs_last, fit.skill_vs_mean]
    assert all(number is not None and math.isfinite(number) for number in numbers)


def test_smoothing_forecasts_as_the_library_does() -> None:
    """What is done for all values at once is what statsmodels says after the last one."""
    rng = np.random.default_rng(3)
    r = np.cumsum(rng.normal(size=300)) / 10 + rng.normal(size=300)
    shape = Forecaster(configured(model="ets"))._maker._shape  # type: ignore[attr-defined]
    weights = model_ets._weights(r)
    rest = model_ets._Model(shape, 0.0, [], weights).rest(r, [1, 3, 9])
    ends = model_ets._Model(shape, 0.0, [], weights).rest(r[:200], [1, 3, 9])
    options = {"error": "add", "trend": "add", "damped_trend": True, "initialization_method": "known", "initial_level": 0, "initial_trend": 0}
    want = ETSModel(r, **options).smooth(weights).forecast(9)[[0, 2, 8]]
    assert rest[:, -1] == pytest.approx(want)
    assert rest[:, 199] == pytest.approx(ends[:, -1])  # nothing that is later is known
    gap = r.copy()
    gap[200:] = math.nan
    assert np.isfinite(model_ets._Model(shape, 0.0, [], weights).rest(gap, [1])).all()


def test_smoothing_remembers_errors_before_the_last_one() -> None:
    """What has been unusual for two hours is followed nearly wholly, though a single error would move the level by a half."""
    past = Played(seasonal).series("", NOW - 575 * 900, NOW, 900)
    forecaster = Forecaster(configured(model="ets"))
    fit = dataclasses.replace(half(forecaster.fit(past, NOW)), lasts=[1.0] * 4)
    c = fit.shift
    risen = past.copy()
    risen.iloc[-8:] = 1.5 * (past.iloc[-8:] + c) - c
    factors = [(b.mean + c) / (a.mean + c) for (_, a), (_, b) in zip(forecaster.ahead(fit, past), forecaster.ahead(fit, risen), strict=True)]
    assert factors == pytest.approx([1.5 ** (1 - 0.5**8)] * 4)


def test_with_sines_the_level_of_the_last_season_is_usual() -> None:
    past = Played(lambda time: seasonal(time) + (100 if time > NOW - 86_400 else 0)).series("", NOW - 575 * 900, NOW, 900)
    forecaster = Forecaster(configured(model="ets", prophet={"scale": "linear"}))
    later = pd.DatetimeIndex(past.index[-48:])
    usual = forecaster._maker.fit(past).usual(later)
    assert list(usual) == pytest.approx([seasonal(time.timestamp()) + 100 for time in later], abs=10)
    said, came = np.array([1.0, 1.0, 1.0, 2.0]), np.array([0.5, 0.5, 0.5, 5.0])
    assert forecaster._maker.regress(said, came) == models.least_absolute(said, came)
    assert Forecaster(configured())._maker.regress(said, came) == models.least_squares(said, came) != models.least_absolute(said, came)


def test_sines_follow_the_clock_of_the_time_zone() -> None:
    """Clocks in Berlin are put back on 25 October 2026. Demand goes by them."""

    def demand(time: float) -> float:
        hour = pd.Timestamp(time, unit="s", tz="UTC").tz_convert("Europe/Berlin").hour
        return 100 + 50 * math.sin(2 * math.pi * hour / 24)

    end = int(pd.Timestamp("2026-10-25T00:00Z").timestamp())
    past = Played(demand).series("", end - 6 * 86_400, end, 3600)
    prophet = {"scale": "linear", "time_zone": "Europe/Berlin"}
    model = Forecaster(configured(model="ets", step="1h", prophet=prophet))._maker.fit(past)
    later = pd.date_range("2026-10-25T02:00Z", periods=24, freq="1h")
    assert list(model.usual(later)) == pytest.approx([demand(time.timestamp()) for time in later], abs=1)


def test_errors_that_last_are_learnt_to_last(model: str) -> None:
    rng = np.random.default_rng(4)
    lasting = np.zeros(576)
    for i in range(1, len(lasting)):
        lasting[i] = 0.98 * lasting[i - 1] + 4 * rng.normal()
    past = Played(lambda time: 300.0 + seasonal(time)).series("", NOW - 575 * 900, NOW, 900)
    fit = Forecaster(configured(model=model)).fit(past + lasting, NOW)
    assert min(fit.lasts) > 0.8
    assert fit.lasts == sorted(fit.lasts, reverse=True)


def test_sines_of_a_short_past_and_errors_that_are_none_do_no_harm() -> None:
    """A week cannot be told from two days, and a constant has no likelihood."""
    forecaster = Forecaster(configured(model="ets", prophet={"weekly": True}))
    past = Played(lambda _: 50.0).series("", NOW - 191 * 900, NOW, 900)
    fit = forecaster.fit(past, NOW)
    assert isinstance(fit.model, model_ets._Model)
    assert [period for period, _ in fit.model.sines] == [86_400]
    assert [(round(band.lower, 6), round(band.mean, 6)) for _, band in forecaster.ahead(fit, past)] == [(50, 50)] * 4
    assert fit.skill is None


def test_a_model_survives_in_a_file(fitted: tuple[Forecaster, Fit, pd.Series[float]], tmp_path: Path) -> None:
    forecaster, fit, past = fitted
    file = tmp_path / "api.model.json"
    assert forecaster.load(file) is None
    forecaster.save(fit, file)
    loaded = forecaster.load(file)
    assert loaded is not None
    assert [p.name for p in tmp_path.iterdir()] == ["api.model.json"]
    for (_, a), (_, b) in zip(forecaster.ahead(fit, past), forecaster.ahead(loaded, past), strict=True):
        assert (a.mean, a.lower, a.upper) == pytest.approx((b.mean, b.lower, b.upper), rel=1e-6)
    assert (loaded.skill_vs_last, loaded.leads, loaded.fitted_at) == (fit.skill_vs_last, fit.leads, fit.fitted_at)
    name = forecaster.model
    assert Forecaster(configured(model=name, horizon="2h")).load(file) is None  # it has no band for that
    assert Forecaster(configured(model="ets" if name == "prophet" else "prophet")).load(file) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"shape": 1}'])
def test_a_broken_file_is_told(fitted: tuple[Forecaster, Fit, pd.Series[float]], tmp_path: Path, text: str) -> None:
    file = tmp_path / "api.model.json"
    file.write_text(text)
    if text == '{"shape": 1}':
        assert fitted[0].load(file) is None
        file.write_text(json.dumps({"shape": fitted[0].shape, "model": {}}))
    with pytest.raises(ValueError):  # noqa: PT011
        fitted[0].load(file)


def test_a_short_history_has_no_folds(model: str) -> None:
    past = Played(seasonal).series("", NOW - 199 * 900, NOW, 900)
    with pytest.raises(TooShort):
        Forecaster(configured(model=model, horizon="6h")).fit(past, NOW)


def test_a_holiday_is_foreseen_and_days_are_those_of_the_time_zone() -> None:
    """Each 13 November has thrice the demand in Tokyo, where it begins nine hours before that of UTC."""

    def demand(time: float) -> float:
        return 300 if pd.Timestamp(time + 9 * 3600, unit="s").day in (13, 17) else 100

    start = int(pd.Timestamp("2026-11-10T00:00Z").timestamp())
    past = Played(demand).series("", start, start + 6 * 86_400, 3600)
    holidays = [{"name": "sale", "dates": ["2026-11-13", "2026-11-17"]}]
    text = json.loads(
        json.dumps(holidays), object_hook=lambda d: {k: [pd.Timestamp(x).date() for x in v] if k == "dates" else v for k, v in d.items()}
    )
    prophet = {"holidays": text, "time_zone": "Asia/Tokyo", "fourier_order": 1, "country": "JP"}
    forecaster = Forecaster(configured(step="1h", prophet=prophet))
    model = forecaster._maker.fit(past)
    times = pd.DatetimeIndex(["2026-11-16T14:00Z", "2026-11-16T16:00Z", "2026-11-17T14:00Z", "2026-11-17T16:00Z"])
    assert list(model.usual(times)) == pytest.approx([100, 300, 300, 100], abs=20)
