from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import cmdstanpy
import numpy as np
import pandas as pd
import pytest

from tests.conftest import Played, configured, seasonal
from weir_advisor.forecast import Fit, Forecaster, TooShort, _lasts

NOW = 1_700_006_400


@pytest.fixture(scope="module")
def fitted() -> tuple[Forecaster, Fit, pd.Series[float]]:
    """A forecaster, and its fit to six days that have a season."""
    past = Played(seasonal).series("", NOW - 575 * 900, NOW, 900)
    forecaster = Forecaster(configured())
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


def test_a_fit_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = list(Path(cmdstanpy._TMPDIR).iterdir())
    Forecaster(configured())._prophet(Played(seasonal).series("", NOW - 200 * 900, NOW, 900))
    assert list(tmp_path.iterdir()) == []
    assert list(Path(cmdstanpy._TMPDIR).iterdir()) == before


def test_the_present_error_lasts_as_it_did_before(fitted: tuple[Forecaster, Fit, pd.Series[float]]) -> None:
    forecaster, fit, past = fitted
    fit = dataclasses.replace(fit, lasts=[1.0, 0.5, 0.25, 0.0])
    c = fit.shift
    risen = past.copy()
    risen.iloc[-1] = 1.5 * (past.iloc[-1] + c) - c
    factors = [(b.mean + c) / (a.mean + c) for (_, a), (_, b) in zip(forecaster.ahead(fit, past), forecaster.ahead(fit, risen), strict=True)]
    assert factors == pytest.approx([1.5, 1.5**0.5, 1.5**0.25, 1])
    assert forecaster.expected(fit, past.index[-1]).upper < risen.iloc[-1]


def test_on_the_linear_scale_errors_add_and_no_forecast_is_below_zero() -> None:
    past = Played(seasonal).series("", NOW - 575 * 900, NOW, 900)
    forecaster = Forecaster(configured(prophet={"scale": "linear"}))
    fit = dataclasses.replace(forecaster.fit(past, NOW), lasts=[1.0, 0.5, 0.25, 0.0])
    risen, fallen = past.copy(), past.copy()
    risen.iloc[-1] += 40
    fallen.iloc[-1] -= 1000
    differences = [b.mean - a.mean for (_, a), (_, b) in zip(forecaster.ahead(fit, past), forecaster.ahead(fit, risen), strict=True)]
    assert differences == pytest.approx([40, 20, 10, 0])
    assert [(band.lower, band.mean) for _, band in forecaster.ahead(fit, fallen)][:3] == [(0.0, 0.0)] * 3


def test_how_long_errors_last_is_a_regression() -> None:
    rng = np.random.default_rng(1)
    errors = [np.zeros(2000), np.zeros(2000)]
    for r in errors:
        for i in range(1, len(r)):
            r[i] = 0.9 * r[i - 1] + rng.normal()
    errors[0][100:120] = math.nan
    assert _lasts(errors, 1) == pytest.approx(0.9, abs=0.03)
    assert _lasts(errors, 5) == pytest.approx(0.9**5, abs=0.08)
    assert _lasts([rng.normal(size=4000)], 1) == pytest.approx(0, abs=0.05)
    assert _lasts([np.zeros(50)], 3) == 0


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
    assert Forecaster(configured(horizon="2h")).load(file) is None  # it has no band for that


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"shape": 1}'])
def test_a_broken_file_is_told(fitted: tuple[Forecaster, Fit, pd.Series[float]], tmp_path: Path, text: str) -> None:
    file = tmp_path / "api.model.json"
    file.write_text(text)
    if text == '{"shape": 1}':
        assert fitted[0].load(file) is None
        file.write_text(json.dumps({"shape": fitted[0].shape, "model": {}}))
    with pytest.raises(ValueError):  # noqa: PT011
        fitted[0].load(file)


def test_a_short_history_has_no_folds() -> None:
    past = Played(seasonal).series("", NOW - 199 * 900, NOW, 900)
    with pytest.raises(TooShort):
        Forecaster(configured(horizon="6h")).fit(past, NOW)


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
    model = forecaster._prophet(past)
    times = pd.DatetimeIndex(["2026-11-16T14:00Z", "2026-11-16T16:00Z", "2026-11-17T14:00Z", "2026-11-17T16:00Z"])
    assert list(forecaster.usual(model, times)) == pytest.approx([100, 300, 300, 100], abs=20)
