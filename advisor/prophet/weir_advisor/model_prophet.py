"""The model prophet: Prophet says what is usual, and of an error the present one is what may be left."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from weir_advisor.models import Array, Shape, least_squares

for talks in ("prophet.plot", "cmdstanpy"):  # of plots that nobody wants, and of each fit; what fails is raised
    logging.getLogger(talks).disabled = True

from holidays import list_supported_countries
from prophet import Prophet
from prophet.serialize import model_from_dict, model_to_dict

logging.getLogger("prophet").setLevel(logging.ERROR)


@dataclass(frozen=True)
class _Model:
    shape: Shape
    fitted: Prophet

    def usual(self, times: pd.DatetimeIndex) -> Array:
        found = self.fitted.predict(pd.DataFrame({"ds": self.shape.local(times)}))
        return found["yhat"].to_numpy(dtype=np.float64)

    def rest(self, errors: Array, leads: list[int]) -> Array:
        return np.broadcast_to(errors, (len(leads), len(errors)))

    def written(self) -> dict[str, Any]:
        return dict(model_to_dict(self.fitted))


class Maker:
    """Fits Prophet. Raises ValueError for an unknown country."""

    memory = 0

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        country = shape.options.country
        if country not in ("", *list_supported_countries(include_aliases=False)):
            raise ValueError(f"prophet.country {country!r}: must be a country whose holidays are known, such as DE")

    def regress(self, said: Array, came: Array) -> float:
        """Returns which part of the present errors has lasted."""
        return least_squares(said, came)

    def fit(self, past: pd.Series[float], weeks: bool = True) -> _Model:
        """Fits Prophet to a past of more than one value, by means of neighbours if there are many. ``weeks`` has no effect: a
        prior keeps down what too short a past does not tell."""
        options = self._shape.options
        times, values = self._shape.thinned(past)
        frame = pd.DataFrame({"ds": times, "y": values})
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
        model.add_seasonality("season", self._shape.season / 86_400, self._shape.order)
        if self._shape.weekly:
            model.add_seasonality("weekly", 7, 3)
        if options.country:
            model.add_country_holidays(options.country)
        with TemporaryDirectory() as folder:  # each fit leaves files and folders where it works
            model.fit(frame, output_dir=folder)
        model.fit_kwargs = {}
        return _Model(self._shape, model)

    def read(self, data: dict[str, Any]) -> _Model:
        """Returns a model that was written."""
        return _Model(self._shape, model_from_dict(data))
