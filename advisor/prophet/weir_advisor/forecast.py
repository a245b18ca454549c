"""Forecasts a demand with Prophet, and measures on the demand's own past what the forecast is worth.

Prophet says what is usual: trend, season, week and holidays, m(t), of x = ln(y + c), where y is the demand and c is 1 % of
its mean (on the scale linear, x = y). What is unusual now lasts for a while, so the forecast h steps after t is

    f(t+h) = m(t+h) + φ(h)·(x(t) − m(t)),   φ(h) = Σ r(t)·r(t+h) / Σ r(t)²  within 0 to 1,   r = x − m,

the regression of the error on the present one. It is learnt, as are the band (quantiles 0.01 and 0.99 of f's errors at h)
and the skill, from models that have not seen what they are tested on: the last part of the history is cut into folds, and
for each Prophet is fitted to all that is before (rolling origins). Values are in the unit of the series; times are UTC.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from weir_advisor.config import Config, ProphetConfig

for talks in ("prophet.plot", "cmdstanpy"):  # of plots that nobody wants, and of each fit; what fails is raised
    logging.getLogger(talks).disabled = True

from holidays import list_supported_countries
from prophet import Prophet
from prophet.serialize import model_from_dict, model_to_dict

logging.getLogger("prophet").setLevel(logging.ERROR)

Array = npt.NDArray[np.float64]
MOST_LEADS = 60  # distances ahead at which the band is known; between them it is that of the next
TESTED = 0.3  # the part of the history that the folds are cut from
LOWER, UPPER = 0.01, 0.99  # the quantiles of the band


class TooShort(Exception):
    """The history is too short for the folds."""


@dataclass(frozen=True)
class Band:
    """A demand that is expected, and its quantiles 0.01 and 0.99."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Fit:
    """A fitted model: what it has learnt of its errors, and its skill at the horizon.

    ``leads`` are steps ahead, rising to the horizon; ``lasts``, ``low`` and ``high`` have a number for each: φ, and the
    quantiles of the error. ``usual_low`` and ``usual_high`` bound what x − m is usually. ``shift`` is c. The skills are 1 − MAE / MAE of the last
    value, and of the mean of the past; None if what is compared with has no error.
    """

    model: Prophet
    fitted_at: float
    leads: list[int]
    lasts: list[float]
    low: list[float]
    high: list[float]
    usual_low: float
    usual_high: float
    shift: float
    skill_vs_last: float | None
    skill_vs_mean: float | None

    @property
    def skill(self) -> float | None:
        """The lesser of the two skills: who only knows the mean, or only the last value, has none."""
        if self.skill_vs_last is None or self.skill_vs_mean is None:
            return None
        return min(self.skill_vs_last, self.skill_vs_mean)


class Forecaster:
    """Fits models by the settings of advisor.yaml. Used by one thread. Raises ValueError for an unknown country."""

    def __init__(self, config: Config) -> None:
        self._options: ProphetConfig = config.prophet
        if self._options.country not in ("", *list_supported_countries(include_aliases=False)):
            raise ValueError(f"prophet.country {self._options.country!r}: must be a country whose holidays are known, such as DE")
        self._season = config.season.total_seconds()
        self._step = config.step.total_seconds()
        self._horizon = math.ceil(config.horizon / config.step)
        weekly = self._options.weekly
        self._weekly = config.season == timedelta(days=1) and config.history >= timedelta(days=14) if weekly is None else weekly
        shape = (self._options.model_dump(mode="json", exclude={"state", "refit"}), self._season, self._step, self._horizon)
        self.shape = hashlib.sha256(json.dumps(shape).encode()).hexdigest()
        """Names the settings that a fit depends on: a fit of another shape is of no use."""

    def _local(self, times: pd.DatetimeIndex) -> pd.DatetimeIndex:
        return times.tz_convert(self._options.time_zone).tz_localize(None)

    def _prophet(self, past: pd.Series[float]) -> Prophet:
        """Fits Prophet to a past of more than one value, by means of neighbours if there are many."""
        options = self._options
        known = past.dropna()
        group = np.arange(len(known)) // math.ceil(len(known) / options.points)
        times = known.index.to_series().groupby(group).mean()
        frame = pd.DataFrame({"ds": self._local(pd.DatetimeIndex(times)), "y": known.groupby(group).mean().to_numpy()})
        first, last = frame["ds"].iloc[0], frame["ds"].iloc[-1]
        changes = [day for day in map(pd.Timestamp, options.changepoints) if first < day < last]
        rows = [
            {"holiday": h.name, "ds": pd.Timestamp(day), "lower_window": h.lower_window, "upper_window": h.upper_window}
            for h in options.holidays
            for day in h.dates
        ]
        model = Prophet(
            growth=options.growth,
            changepoints=changes or None,
            n_changepoints=options.n_changepoints,
            changepoint_range=options.changepoint_range,
            changepoint_prior_scale=options.changepoint_prior_scale,
            seasonality_prior_scale=options.seasonality_prior_scale,
            holidays=pd.DataFrame(rows) if rows else None,
            holidays_prior_scale=options.holidays_prior_scale,
            yearly_seasonality=False,
            weekly_seasonality=False,
            daily_seasonality=False,
            uncertainty_samples=0,
        )
        order = max(1, min(options.fourier_order, int(self._season / self._step / 2) - 1))
        model.add_seasonality("season", self._season / 86_400, order)
        if self._weekly:
            model.add_seasonality("weekly", 7, 3)
        if options.country:
            model.add_country_holidays(options.country)
        with TemporaryDirectory() as folder:  # each fit leaves files and folders where it works
            model.fit(frame, output_dir=folder)
        model.fit_kwargs = {}
        return model

    def usual(self, model: Prophet, times: pd.DatetimeIndex) -> Array:
        """Returns m at some times: what is usual then, on the scale of the model."""
        found = model.predict(pd.DataFrame({"ds": self._local(times)}))
        return found["yhat"].to_numpy(dtype=np.float64)

    def fit(self, past: pd.Series[float], now: float) -> Fit:
        """Fits a model to a series, and tests it. Raises TooShort if a fold would not be twice the horizon."""
        y: Array = np.asarray(past, dtype=np.float64)
        shift = float(np.nanmean(y)) / 100 + 1e-9
        x = self.scaled(y, shift)
        scaled = pd.Series(x, index=past.index)
        size = int(len(y) * TESTED) // self._options.folds
        horizon = self._horizon
        if size < 2 * horizon or size < 8:
            raise TooShort(f"{len(y)} values are too few for {self._options.folds} folds of twice the horizon")
        leads = sorted({math.ceil(horizon * (i + 1) / MOST_LEADS) for i in range(MOST_LEADS)})
        errors: list[Array] = []  # r of each fold
        worth: list[Array] = []  # of each fold but the first, the errors of f, of the last value and of the mean
        for fold in range(self._options.folds):
            begin = len(y) - (self._options.folds - fold) * size
            seen, tested = scaled.iloc[:begin], scaled.iloc[begin : begin + size]
            usual = self.usual(self._prophet(seen), pd.DatetimeIndex(tested.index))
            r = x[begin : begin + size] - usual
            if errors:
                later, earlier = y[begin + horizon : begin + size], y[begin : begin + size - horizon]
                mine = self.demand(usual[horizon:] + _lasts(errors, horizon) * r[:-horizon], shift)
                worth.append(np.abs(np.vstack([later - mine, later - earlier, later - float(np.nanmean(y[:begin]))])))
            errors.append(r)
        compared = np.hstack(worth)
        mae = compared[:, ~np.isnan(compared).any(axis=0)].mean(axis=1)
        lasts = [_lasts(errors, lead) for lead in leads]
        bands = [np.nanquantile(_ahead(errors, lead, last), [LOWER, UPPER]) for lead, last in zip(leads, lasts, strict=True)]
        usual_low, usual_high = _usual(np.concatenate(errors))
        return Fit(
            model=self._prophet(scaled),
            fitted_at=now,
            leads=leads,
            lasts=lasts,
            low=[min(float(band[0]), 0.0) for band in bands],
            high=[max(float(band[1]), 0.0) for band in bands],
            usual_low=usual_low,
            usual_high=usual_high,
            shift=shift,
            skill_vs_last=1 - float(mae[0] / mae[1]) if mae[1] > 0 else None,
            skill_vs_mean=1 - float(mae[0] / mae[2]) if mae[2] > 0 else None,
        )

    def ahead(self, fit: Fit, past: pd.Series[float]) -> list[tuple[pd.Timestamp, Band]]:
        """Forecasts after the last known value of a series, at each of the fit's leads up to the horizon. No number is below 0."""
        known = past.dropna()
        origin = pd.Timestamp(known.index[-1])
        times = pd.DatetimeIndex([origin, *(past.index[-1] + pd.Timedelta(seconds=lead * self._step) for lead in fit.leads)])
        usual = self.usual(fit.model, times)
        unusual = self.scaled(np.asarray(known.iloc[-1:], dtype=np.float64), fit.shift)[0] - usual[0]
        bands = zip(usual[1:] + np.array(fit.lasts) * unusual, fit.low, fit.high, strict=True)
        return [(pd.Timestamp(times[i + 1]), self._band(fit, *band)) for i, band in enumerate(bands)]

    def expected(self, fit: Fit, time: pd.Timestamp) -> Band:
        """Returns the band of what is usual at a time, whatever happened before."""
        return self._band(fit, float(self.usual(fit.model, pd.DatetimeIndex([time]))[0]), fit.usual_low, fit.usual_high)

    def _band(self, fit: Fit, mean: float, low: float, high: float) -> Band:
        return Band(*(float(y) for y in self.demand(np.array([mean, mean + low, mean + high]), fit.shift)))

    def scaled(self, y: Array, shift: float) -> Array:
        """Returns the values that models are fitted to, of demands."""
        return np.asarray(np.log(np.maximum(y, 0) + shift) if self._options.scale == "log" else y, dtype=np.float64)

    def demand(self, x: Array, shift: float) -> Array:
        """Returns the demand, from 0 to 10^12, of values on the scale that models are fitted on."""
        return np.asarray(np.clip(np.exp(np.minimum(x, 28)) - shift if self._options.scale == "log" else x, 0, 1e12), dtype=np.float64)

    def save(self, fit: Fit, path: Path) -> None:
        """Writes a fit into a file, whole or not at all. Raises OSError."""
        text = json.dumps({"shape": self.shape, **asdict(replace(fit, model=None)), "model": model_to_dict(fit.model)})  # type: ignore[arg-type]
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)

    def load(self, path: Path) -> Fit | None:
        """Reads a fit from a file. Returns None if there is none, or one of another shape. Raises ValueError if it is broken, and OSError."""
        try:
            data: dict[str, Any] = json.loads(path.read_text())
            if data.pop("shape") != self.shape:
                return None
            fit = Fit(**{**data, "model": model_from_dict(data["model"])})
            self.expected(fit, pd.Timestamp(fit.fitted_at, unit="s", tz="UTC"))
            return fit
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(str(error)) from error


def _usual(errors: Array) -> tuple[float, float]:
    """Returns the bounds that errors of a normal distribution exceed in one of 100 cases each. Their median and the median of their distance from it
    make them, so that the present anomaly, which is among the errors, does not move them."""
    middle = float(np.nanmedian(errors))
    wide = 2.326 * 1.4826 * float(np.nanmedian(np.abs(errors - middle)))
    return min(middle - wide, 0.0), max(middle + wide, 0.0)


def _lasts(errors: list[Array], lead: int) -> float:
    """Returns φ: how much of an error is left after so many steps."""
    now = np.concatenate([r[:-lead] for r in errors])
    later = np.concatenate([r[lead:] for r in errors])
    both = ~(np.isnan(now) | np.isnan(later))
    square = float(np.square(now[both]).sum())
    return min(max(float((now[both] * later[both]).sum()) / square, 0.0), 1.0) if square > 0 else 0.0


def _ahead(errors: list[Array], lead: int, lasts: float) -> Array:
    """Returns the errors of the forecast so many steps ahead, with gaps."""
    return np.concatenate([r[lead:] - lasts * r[:-lead] for r in errors])
