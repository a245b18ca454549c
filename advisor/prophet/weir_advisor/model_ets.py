"""The model ets: sines say what is usual, and exponential smoothing (ETS, of statsmodels) what of an error is left.

What is usual is m(t) = c + Σ a·sin(2πkt/p) + b·cos(2πkt/p), where p is the season, and the week with ``weekly``. The coefficients are
those of least squares with a small penalty, and c is such that the median of the errors r = x − m of the last season is 0. On r a model
ETS(A,Ad,N) is fitted by its likelihood: additive errors, a damped trend, no season. It is written as in R. J. Hyndman, A. B. Koehler,
J. K. Ord and R. D. Snyder, Forecasting with Exponential Smoothing, 2008, table 2.2:

    e(t) = r(t) − l(t−1) − φ·b(t−1)
    l(t) = l(t−1) + φ·b(t−1) + α·e(t)
    b(t) = φ·b(t−1) + β·e(t)
    r̂(t+h) = l(t) + (φ + … + φʰ)·b(t)

In a gap r stays as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from statsmodels.tsa.exponential_smoothing.ets import ETSModel  # type: ignore[import-untyped]

from weir_advisor.models import WEEK, Array, Shape, least_absolute

WEEKLY = 3  # how many sines make a week
PENALTY = 0.001  # of the square of a coefficient, for each value: what too short a past does not tell is 0
METHOD: dict[str, Any] = {"error": "add", "trend": "add", "damped_trend": True}
MOST = 20_000  # values, the last ones, that smoothing is fitted to
FLAT = 1e-9  # a deviation of errors that is none
NOTHING = (1e-4, 0.0, 0.98)  # weights with which errors leave nothing; statsmodels takes no α of 0


@dataclass(frozen=True)
class _Model:
    """``sines`` has for each period in seconds the coefficients of its sines and cosines; ``weights`` are α, β and φ."""

    shape: Shape
    level: float
    sines: list[tuple[float, list[float]]]
    weights: tuple[float, float, float]

    def usual(self, times: pd.DatetimeIndex) -> Array:
        found = np.full(len(times), self.level)
        for period, coefficients in self.sines:
            found += _columns(self.shape.local(times), period, len(coefficients) // 2) @ np.array(coefficients)
        return found

    def rest(self, errors: Array, leads: list[int]) -> Array:
        known = pd.Series(errors).ffill().fillna(0.0).to_numpy()
        with _quiet():
            model = ETSModel(known, **METHOD, initialization_method="known", initial_level=0.0, initial_trend=0.0)
            smoothed = model.smooth(self.weights)
        fades = np.cumsum(self.weights[2] ** np.arange(1, leads[-1] + 1))[np.array(leads) - 1]
        return np.asarray(smoothed.level + np.outer(fades, smoothed.slope), dtype=np.float64)

    def written(self) -> dict[str, Any]:
        return {"level": self.level, "sines": self.sines, "weights": self.weights}


class Maker:
    """Fits sines and exponential smoothing."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.memory = 2 * round(shape.season / shape.step)

    def regress(self, said: Array, came: Array) -> float:
        """Returns which part of what smoothing said has come."""
        return least_absolute(said, came)

    def fit(self, past: pd.Series[float], weeks: bool = True) -> _Model:
        """Fits the model to a past of more than one value: the sines by means of neighbours if there are many."""
        shape = self._shape
        times, values = shape.thinned(past)
        periods = [(shape.season, shape.order)]
        if shape.weekly and weeks:
            periods.append((WEEK, WEEKLY))
        columns = np.hstack([np.ones((len(times), 1)), *(_columns(times, period, order) for period, order in periods)])
        penalty = np.diag([0.0, *[PENALTY * len(times)] * (columns.shape[1] - 1)])
        found = np.linalg.solve(columns.T @ columns + penalty, columns.T @ values)
        sines, begin = [], 1
        for period, order in periods:
            sines.append((period, found[begin : begin + 2 * order].tolist()))
            begin += 2 * order
        model = _Model(shape, float(found[0]), sines, NOTHING)
        errors = past - model.usual(pd.DatetimeIndex(past.index))
        moved = float(errors.iloc[-self.memory // 2 :].median())
        moved = 0.0 if np.isnan(moved) else moved
        return _Model(shape, model.level + moved, sines, _weights(np.asarray((errors - moved).ffill().dropna(), dtype=np.float64)[-MOST:]))

    def read(self, data: dict[str, Any]) -> _Model:
        """Returns a model that was written."""
        alpha, beta, phi = data["weights"]
        return _Model(self._shape, data["level"], [(period, coefficients) for period, coefficients in data["sines"]], (alpha, beta, phi))


def _columns(times: pd.DatetimeIndex, period: float, order: int) -> Array:
    """Returns sines and cosines of so many multiples of a period in seconds, at times without a zone: an array of shape (times, 2·order)."""
    angles = 2 * np.pi / period * np.outer(times.as_unit("us").asi8 / 1e6 % period, np.arange(1, order + 1))
    return np.hstack([np.sin(angles), np.cos(angles)])


def _weights(errors: Array) -> tuple[float, float, float]:
    """Returns the likeliest α, β and φ of errors without gaps, or those that the search for them ended with. Of errors that are 0 it is NOTHING."""
    if float(np.std(errors)) < FLAT:
        return NOTHING
    with _quiet():
        fitted = ETSModel(errors, **METHOD, initialization_method="heuristic").fit(disp=False)
    weights = (float(fitted.smoothing_level), float(fitted.smoothing_trend), float(fitted.damping_trend))
    if not np.isfinite(weights).all():
        raise ValueError("exponential smoothing has no weights that fit")
    return weights


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings: that errors are all 0, and that the likelihood may rise further. The tests of the skill say what a fit is worth."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
