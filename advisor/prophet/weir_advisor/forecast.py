"""Forecasts a demand with a model, and measures on the demand's own past what the forecast is worth.

The model says what is usual: trend, season, week and holidays, m(t), of x = ln(y + c), where y is the demand and c is 1 % of
its mean (on the scale linear, x = y). What is unusual now lasts for a while, so the forecast h steps after t is

    f(t+h) = m(t+h) + φ(h)·z(t,h),   φ(h) from 0 to 1.

Here z(t,h) is what the model makes of the errors r = x − m up to t: r(t) itself with Prophet, a forecast of r(t+h) with ets. φ is the
regression of r(t+h) on it, by least squares with Prophet, by least absolute errors with ets. It is learnt, as are the band (quantiles
0.01 and 0.99 of f's errors at h) and the skill, from models that have not seen what they are tested on: the last part of the history is
cut into folds, and for each a model is fitted to all that is before (rolling origins). Values are in the unit of the series; times are
UTC.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from weir_advisor.config import Config, ProphetConfig
from weir_advisor.models import WEEK, Array, Maker, Model, Shape

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

    model: Model
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
        self.model = config.model
        self._options: ProphetConfig = config.prophet
        self._step = config.step.total_seconds()
        self._horizon = math.ceil(config.horizon / config.step)
        weekly = self._options.weekly
        weekly = config.season == timedelta(days=1) and config.history >= timedelta(days=14) if weekly is None else weekly
        season = config.season.total_seconds()
        self._maker = _maker(config.model, Shape(self._options, season, self._step, weekly))
        shape = (config.model, self._options.model_dump(mode="json", exclude={"state", "refit"}), season, self._step, self._horizon, weekly)
        self.shape = hashlib.sha256(json.dumps(shape).encode()).hexdigest()
        """Names the settings that a fit depends on: a fit of another shape is of no use."""

    def fit(self, past: pd.Series[float], now: float) -> Fit:
        """Fits a model to a series, and tests it. Raises TooShort if a fold would not be twice the horizon."""
        y: Array = np.asarray(past, dtype=np.float64)
        shift = max(float(np.nanmean(y)), 0.0) / 100 + 1e-9  # a query may have values below 0
        x = self.scaled(y, shift)
        scaled = pd.Series(x, index=past.index)
        size = int(len(y) * TESTED) // self._options.folds
        horizon = self._horizon
        if size < 2 * horizon or size < 8:
            raise TooShort(f"{len(y)} values are too few for {self._options.folds} folds of twice the horizon")
        weeks = (len(y) - self._options.folds * size) * self._step >= WEEK  # so that all models, of the folds and of the whole, are of one kind
        leads = sorted({math.ceil(horizon * (i + 1) / MOST_LEADS) for i in range(MOST_LEADS)})
        trials: list[_Trial] = []
        worth: list[Array] = []  # of each fold but the first, the errors of f, of the last value and of the mean
        for fold in range(self._options.folds):
            begin = len(y) - (self._options.folds - fold) * size
            model = self._maker.fit(scaled.iloc[:begin], weeks)
            seen = scaled.iloc[max(begin - self._maker.memory, 0) : begin + size]
            usual = model.usual(pd.DatetimeIndex(seen.index))
            r = np.asarray(seen, dtype=np.float64) - usual
            trial = _Trial(r[-size:], model.rest(r, leads)[:, -size:])
            if trials:
                later, earlier = y[begin + horizon : begin + size], y[begin : begin + size - horizon]
                left = self._lasts(trials, -1, horizon) * trial.rest[-1, :-horizon]
                mine = self.demand(usual[-size:][horizon:] + left, shift)
                worth.append(np.abs(np.vstack([later - mine, later - earlier, later - float(np.nanmean(y[:begin]))])))
            trials.append(trial)
        compared = np.hstack(worth)
        mae = compared[:, ~np.isnan(compared).any(axis=0)].mean(axis=1)
        lasts = [self._lasts(trials, i, lead) for i, lead in enumerate(leads)]
        bands = [np.nanquantile(_ahead(trials, i, lead, lasts[i]), [LOWER, UPPER]) for i, lead in enumerate(leads)]
        usual_low, usual_high = _usual(np.concatenate([trial.errors for trial in trials]))
        return Fit(
            model=self._maker.fit(scaled, weeks),
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

    def _lasts(self, trials: list[_Trial], i: int, lead: int) -> float:
        """Returns φ of a lead, which is the one numbered i: how much of z comes true."""
        now = np.concatenate([trial.rest[i, :-lead] for trial in trials])
        later = np.concatenate([trial.errors[lead:] for trial in trials])
        both = ~(np.isnan(now) | np.isnan(later))
        return self._maker.regress(now[both], later[both])

    def ahead(self, fit: Fit, past: pd.Series[float]) -> list[tuple[pd.Timestamp, Band]]:
        """Forecasts after the last known value of a series, at each of the fit's leads up to the horizon. No number is below 0."""
        end = len(past) - 1 - int(np.argmax(past.notna().to_numpy()[::-1]))
        known = past.iloc[max(end - self._maker.memory, 0) : end + 1]
        times = [past.index[-1] + pd.Timedelta(seconds=lead * self._step) for lead in fit.leads]
        usual = fit.model.usual(pd.DatetimeIndex([*known.index, *times]))
        errors = self.scaled(np.asarray(known, dtype=np.float64), fit.shift) - usual[: len(known)]
        rest = fit.model.rest(errors, fit.leads)[:, -1]
        bands = zip(usual[len(known) :] + np.array(fit.lasts) * rest, fit.low, fit.high, strict=True)
        return [(pd.Timestamp(time), self._band(fit, *band)) for time, band in zip(times, bands, strict=True)]

    def expected(self, fit: Fit, time: pd.Timestamp) -> Band:
        """Returns the band of what is usual at a time, whatever happened before."""
        return self._band(fit, float(fit.model.usual(pd.DatetimeIndex([time]))[0]), fit.usual_low, fit.usual_high)

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
        learnt = {field.name: getattr(fit, field.name) for field in fields(fit)}
        text = json.dumps({"shape": self.shape, **learnt, "model": fit.model.written()})
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)

    def load(self, path: Path) -> Fit | None:
        """Reads a fit from a file. Returns None if there is none, or one of another shape. Raises ValueError if it is broken, and OSError."""
        try:
            data: dict[str, Any] = json.loads(path.read_text())
            if data.pop("shape") != self.shape:
                return None
            fit = Fit(**{**data, "model": self._maker.read(data["model"])})
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


@dataclass(frozen=True)
class _Trial:
    """What a fold has shown: the errors r, and z, of the shape (leads, errors)."""

    errors: Array
    rest: Array


def _ahead(trials: list[_Trial], i: int, lead: int, lasts: float) -> Array:
    """Returns the errors of the forecast so many steps ahead, with gaps."""
    return np.concatenate([trial.errors[lead:] - lasts * trial.rest[i, :-lead] for trial in trials])


def _maker(name: str, shape: Shape) -> Maker:
    """Returns what fits models of a name. What only others need is not loaded."""
    if name == "ets":
        from weir_advisor import model_ets

        return model_ets.Maker(shape)
    from weir_advisor import model_prophet

    return model_prophet.Maker(shape)
