"""What a model of demand is, and what all of them need. Values are on the scale that models are fitted on; times are UTC."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from weir_advisor.config import ProphetConfig

Array = npt.NDArray[np.float64]

WEEK = 604_800.0  # seconds


class Model(Protocol):
    """A fitted model. ``usual`` returns m, which is usual at some times. ``rest`` returns what of an error x − m is likely to be left: of n errors
    and L numbers of steps, an array of shape (L, n), whose [i, t] is what the errors up to t say of the one ``leads[i]`` steps after t."""

    def usual(self, times: pd.DatetimeIndex) -> Array:
        """Returns m at some times."""

    def rest(self, errors: Array, leads: list[int]) -> Array:
        """Returns what of errors is likely to be left."""

    def written(self) -> dict[str, Any]:
        """Returns the model as its maker reads it: values of JSON."""


class Maker(Protocol):
    """Fits models of one kind. ``memory`` is how many errors before the present one a model's ``rest`` wants to see."""

    memory: int

    def regress(self, said: Array, came: Array) -> float:
        """Returns which part, from 0 to 1, of what ``rest`` said has come. Both have the same length, and no gaps."""

    def fit(self, past: pd.Series[float], weeks: bool = True) -> Model:
        """Fits a model to a past of more than one value. Without ``weeks`` the past is too short to tell weekdays apart. Raises RuntimeError or
        ValueError if it cannot be fitted."""

    def read(self, data: dict[str, Any]) -> Model:
        """Returns a model that was written. Raises KeyError, TypeError, AttributeError, IndexError or ValueError if it is broken."""


@dataclass(frozen=True)
class Shape:
    """What models are made by. ``season`` and ``step`` are in seconds; ``weekly`` is whether weekdays differ."""

    options: ProphetConfig
    season: float
    step: float
    weekly: bool

    @property
    def order(self) -> int:
        """How many sines make a season: not more than its steps can tell apart."""
        return max(1, min(self.options.fourier_order, int(self.season / self.step / 2) - 1))

    def local(self, times: pd.DatetimeIndex) -> pd.DatetimeIndex:
        """Returns times of the clock in the time zone, without the zone."""
        return times.tz_convert(self.options.time_zone).tz_localize(None)

    def thinned(self, past: pd.Series[float]) -> tuple[pd.DatetimeIndex, Array]:
        """Returns the times, as ``local`` has them, and the values of a past without gaps: means of neighbours if there are many."""
        known = past.dropna()
        group = np.arange(len(known)) // math.ceil(len(known) / self.options.points)
        times = known.index.to_series().groupby(group).mean()
        return self.local(pd.DatetimeIndex(times)), np.asarray(known.groupby(group).mean(), dtype=np.float64)


def least_squares(said: Array, came: Array) -> float:
    """Returns the φ from 0 to 1 with the least sum of (came − φ·said)²."""
    square = float(np.square(said).sum())
    return min(max(float((said * came).sum()) / square, 0.0), 1.0) if square > 0 else 0.0


def least_absolute(said: Array, came: Array) -> float:
    """Returns the φ from 0 to 1 with the least sum of |came − φ·said|: the median of came ÷ said, weighted by |said|."""
    some = said != 0
    ratios, weights = came[some] / said[some], np.abs(said[some])
    if not len(ratios):
        return 0.0
    order = np.argsort(ratios)
    sums = np.cumsum(weights[order])
    return min(max(float(ratios[order][np.searchsorted(sums, sums[-1] / 2)]), 0.0), 1.0)
