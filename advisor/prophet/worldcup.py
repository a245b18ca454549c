"""Prints how far forecasts of the requests to the 1998 World Cup's site are off, beside the last value and the same time of the day before.

python worldcup.py [log|linear]: the scale. Each day it fits models to the 14 days before, and then forecasts at each
5 minutes of the day, 30 and 60 minutes ahead. It takes some minutes.
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
    lines = gzip.decompress(DATA.read_bytes()).decode().splitlines()
    times = pd.date_range("1998-04-30T21:30Z", periods=len(lines), freq=f"{STEP}min")
    y = pd.Series([float(line) if line else np.nan for line in lines], index=times)
    scale = sys.argv[1] if len(sys.argv) > 1 else "log"
    print("| minutes ahead | Prophet | last value | day before | Prophet / last value | above the band | below | abstains |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for minutes in (30, 60):
        h = minutes // STEP
        forecaster = Forecaster(config(minutes, scale))
        off, abstains, days = [], 0, 0
        for day in range(14 * DAY, len(y) - DAY + 1, DAY):
            fit = forecaster.fit(y.iloc[day - 14 * DAY : day], 0)
            days += 1
            abstains += fit.skill is None or fit.skill < 0.05
            around = y.iloc[day - h : day + DAY]
            usual = forecaster.usual(fit.model, pd.DatetimeIndex(around.index))
            values = around.to_numpy()
            came, last, before = values[h:], values[:-h], y.iloc[day - DAY : day].to_numpy()
            forecast = usual[h:] + fit.lasts[-1] * (forecaster.scaled(last, fit.shift) - usual[:-h])
            mine, low, high = (forecaster.demand(forecast + error, fit.shift) for error in (0, fit.low[-1], fit.high[-1]))
            off.append(np.vstack([came, np.abs(mine - came), np.abs(last - came), np.abs(before - came), came > high, came < low]))
        known = np.hstack(off)
        came, mine, last, before, above, below = known[:, ~np.isnan(known).any(axis=0)].mean(axis=1)
        shares = " | ".join(f"{100 * x:.1f} %" for x in (mine / came, last / came, before / came))
        print(f"| {minutes} | {shares} | {mine / last:.3f} | {100 * above:.1f} % | {100 * below:.1f} % | {abstains} of {days} days |", flush=True)


def config(minutes: int, scale: str) -> Config:
    """Returns the default configuration with that horizon, for a series of 5 minutes."""
    data = {
        "prometheus": {"url": "http://127.0.0.1:9090"},
        "horizon": f"{minutes}m",
        "step": f"{STEP}m",
        "prophet": {"scale": scale},
        "rules": (),
    }
    return Config.model_validate(data)


if __name__ == "__main__":
    main()
