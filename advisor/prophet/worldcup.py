"""Prints how far forecasts of the requests to the 1998 World Cup's site are off, beside the last value and the same time of the day before.

python worldcup.py [log|linear [N]]: the scale, and that only each Nth day is forecast. For each day it fits models to the 14 days before, and then
forecasts at each 5 minutes of the day, 30 and 60 minutes ahead. It takes some minutes.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from weir_advisor.config import Config
from weir_advisor.forecast import Forecaster

DATA = Path(__file__).parents[2] / "testdata/worldcup/requests-in-5-minutes.txt.gz"
STEP, DAY = 5, 288


def main() -> None:
    """Prints mean absolute errors in per cent of the mean demand, for each number of minutes ahead."""
    scale, each = [*sys.argv[1:3], *("log", "1")[len(sys.argv[1:3]) :]]
    lines = gzip.decompress(DATA.read_bytes()).decode().splitlines()
    times = pd.date_range("1998-04-30T21:30Z", periods=len(lines), freq=f"{STEP}min")
    y = pd.Series([float(line) if line else np.nan for line in lines], index=times)
    forecaster = Forecaster(config(scale))
    found: dict[int, list[np.ndarray]] = {6: [], 12: []}  # by steps ahead
    abstains = 0
    days = range(14 * DAY, len(y) - DAY + 1, DAY * int(each))
    for day in days:
        fit = forecaster.fit(y.iloc[day - 14 * DAY : day], 0)
        abstains += fit.skill is None or fit.skill < 0.05
        for h, off in found.items():
            lasts, low, high = (numbers[fit.leads.index(h)] for numbers in (fit.lasts, fit.low, fit.high))
            around = y.iloc[day - h : day + DAY]
            usual, values = forecaster.usual(fit.model, pd.DatetimeIndex(around.index)), around.to_numpy()
            came, last, before = values[h:], values[:-h], y.iloc[day - DAY : day].to_numpy()
            forecast = usual[h:] + lasts * (forecaster.scaled(last, fit.shift) - usual[:-h])
            mine, lower, upper = (forecaster.demand(forecast + error, fit.shift) for error in (0, low, high))
            off.append(np.vstack([came, np.abs(mine - came), np.abs(last - came), np.abs(before - came), came > upper, came < lower]))
    print("| minutes ahead | Prophet | last value | day before | Prophet / last value | above the band | below |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for h, off in found.items():
        known = np.hstack(off)
        came, mine, last, before, above, below = known[:, ~np.isnan(known).any(axis=0)].mean(axis=1)
        shares = " | ".join(f"{100 * x:.1f} %" for x in (mine / came, last / came, before / came))
        print(f"| {h * STEP} | {shares} | {mine / last:.3f} | {100 * above:.1f} % | {100 * below:.1f} % |")
    print(f"An hour ahead it abstains on {abstains} of {len(days)} days.")


def config(scale: str) -> Config:
    """Returns the default configuration for a series of 5 minutes and a horizon of an hour."""
    data = {"prometheus": {"url": "http://127.0.0.1:9090"}, "horizon": "1h", "step": f"{STEP}m", "prophet": {"scale": scale}, "rules": ()}
    return Config.model_validate(data)


if __name__ == "__main__":
    main()
