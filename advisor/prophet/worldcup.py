"""Prints how far forecasts are off for the 1998 World Cup's site, beside the last value and the same time of the day before.

python worldcup.py [worldcup98-requests-a-minute.csv.gz]. It takes some minutes: each day it fits models to the 14 days before, and then
forecasts in each minute of the day.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from weir_advisor.config import Config
from weir_advisor.forecast import Forecaster

DATA = Path(__file__).parents[2] / "testdata/worldcup/worldcup98-requests-a-minute.csv.gz"
DAY, LEARNT = 1440, 14 * 1440


def main() -> None:
    """Prints a table of mean absolute errors (MAE, requests a minute) and mean relative errors (MAPE), by minutes ahead."""
    read = pd.read_csv(sys.argv[1] if len(sys.argv) > 1 else DATA)
    y = pd.Series(read.iloc[:, 1].to_numpy(dtype="float64"), index=pd.DatetimeIndex(pd.to_datetime(read.iloc[:, 0], utc=True)))
    horizons = (30, 60)
    forecasters = {h: Forecaster(config(h)) for h in horizons}
    off: dict[int, list[np.ndarray]] = {h: [] for h in horizons}
    skills: dict[int, list[float]] = {h: [] for h in horizons}
    for day in range(LEARNT, len(y) - DAY + 1, DAY):
        print(f"day {day // DAY} of {len(y) // DAY}", file=sys.stderr)
        for h in horizons:
            fit = forecasters[h].fit(y.iloc[day - LEARNT : day], 0)
            if fit.skill is not None:
                skills[h].append(fit.skill)
            around = y.iloc[day - h : day + DAY]
            usual = forecasters[h].usual(fit.model, pd.DatetimeIndex(around.index))
            values = around.to_numpy()
            mine = np.maximum(usual[h:] + fit.lasts[-1] * (values[:-h] - usual[:-h]), 0)
            came = values[h:]
            yesterday = y.iloc[day - DAY : day].to_numpy()
            off[h].append(np.vstack([np.maximum(came, 1), np.abs(mine - came), np.abs(values[:-h] - came), np.abs(yesterday - came)]))
    print("| minutes ahead | MAE Prophet | last value | day before | MAPE Prophet | last value | day before | MAE / last value | days with skill |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for h in horizons:
        came, *errors = np.hstack(off[h])
        mae = [f"{e.mean():.0f}" for e in errors]
        mape = [f"{100 * (e / came).mean():.1f} %" for e in errors]
        skilled = 100 * np.mean([skill >= 0.05 for skill in skills[h]])
        print("| " + " | ".join([str(h), *mae, *mape, f"{errors[0].mean() / errors[1].mean():.2f}", f"{skilled:.0f} %"]) + " |")


def config(horizon: int) -> Config:
    """Returns the default configuration with a horizon in minutes."""
    return Config.model_validate({"prometheus": {"url": "http://127.0.0.1:9090"}, "horizon": timedelta(minutes=horizon), "rules": ()})


if __name__ == "__main__":
    main()
