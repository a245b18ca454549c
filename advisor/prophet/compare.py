"""Prints how far a model's forecasts are off, beside the last value and the same time of the day before.

python compare.py [prophet|ets [SERIES [log|linear [N]]]]: the model, what is forecast, the scale, and that only each Nth day is forecast. SERIES is

- worldcup: the requests to the 1998 World Cup's site, in testdata/worldcup;
- day: 28 days with the same season each, and noise;
- bursts: the same, and on average two bursts a day at times that nobody can know, which halve in 30 minutes;
- walk: a random walk;
- cost: none. It says what a fit (with its tests, once an hour) and a forecast (each turn) of 14 days at a step of a minute cost.

For each day it fits models to the 14 days before, and then forecasts at each 5 minutes of the day, 5, 30 and 60 minutes ahead.
TestForecastsBeatTheLastValueWhereThatCanBe in advisor/worldcup_test.go does the same with the advisor in Go.
"""

from __future__ import annotations

import gzip
import resource
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from weir_advisor.config import Config
from weir_advisor.forecast import Forecaster

DATA = Path(__file__).parents[2] / "testdata/worldcup/requests-in-5-minutes.txt.gz"
STEP, DAY = 5, 288


def series(name: str) -> pd.Series[float]:
    """Returns a series by its name. Raises KeyError if there is none of it."""
    if name == "worldcup":
        lines = gzip.decompress(DATA.read_bytes()).decode().splitlines()
        times = pd.date_range("1998-04-30T21:30Z", periods=len(lines), freq=f"{STEP}min")
        return pd.Series([float(line) if line else np.nan for line in lines], times)
    return pd.Series(generated(name, 28 * DAY, DAY), pd.date_range("2026-11-02T00:00Z", periods=28 * DAY, freq=f"{STEP}min"))


def generated(name: str, n: int, per_day: int) -> np.ndarray:
    """Returns n values of a series. Its noise is that of testdata/advice, which is the same in each language."""
    x = 1

    def noise() -> float:
        nonlocal x
        total = 0.0
        for _ in range(12):
            x = 48271 * x % (2**31 - 1)
            total += x / (2**31 - 1)
        return total - 6

    values, burst, walk = np.empty(n), 0.0, 500.0
    for i in range(n):
        burst = burst * 0.5 ** (48 / per_day) + 150 * (noise() > 2.45)
        walk += 5 * noise()
        day = 100 + 50 * np.sin(2 * np.pi * i / per_day) + 5 * noise()
        values[i] = {"day": day, "bursts": day + burst, "walk": abs(walk)}[name]
    return values


def cpu() -> float:
    """Returns the seconds of CPU that this process and its children have used."""
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def cost(model: str) -> None:
    """Prints seconds of CPU, of this process and its children, and the most memory of this process."""
    y = pd.Series(generated("day", 14 * 1440, 1440), pd.date_range("2026-11-02T00:00Z", periods=14 * 1440, freq="1min"))
    forecaster = Forecaster(Config.model_validate({"prometheus": {"url": "http://127.0.0.1:9090"}, "model": model, "rules": ()}))
    started, forecasts = cpu(), 20
    fit = forecaster.fit(y, 0)
    fitted = cpu()
    for _ in range(forecasts):
        forecaster.ahead(fit, y)
    took, memory = cpu() - fitted, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print("| model | to start | a fit | a forecast | memory |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| {model} | {started:.1f} s | {fitted - started:.1f} s | {1000 * took / forecasts:.0f} ms | {memory} MB |")


def main() -> None:
    """Prints mean absolute errors in per cent of the mean demand, for each number of minutes ahead."""
    model, name, scale, each = [*sys.argv[1:5], *("prophet", "worldcup", "log", "1")[len(sys.argv[1:5]) :]]
    if name == "cost":
        cost(model)
        return
    y = series(name)
    forecaster = Forecaster(config(model, scale))
    found: dict[int, list[np.ndarray]] = {1: [], 6: [], 12: []}  # by steps ahead
    abstains = 0
    days = range(14 * DAY, len(y) - DAY + 1, DAY * int(each))
    for day in days:
        fit = forecaster.fit(y.iloc[day - 14 * DAY : day], 0)
        abstains += fit.skill is None or fit.skill < 0.05
        around = y.iloc[day - 2 * DAY - max(found) : day + DAY]
        usual, values = fit.model.usual(pd.DatetimeIndex(around.index)), around.to_numpy()
        rest = fit.model.rest(forecaster.scaled(values, fit.shift) - usual, fit.leads)
        for h, off in found.items():
            i = fit.leads.index(h)
            came, last, before = values[-DAY:], values[-DAY - h : -h], values[-2 * DAY : -DAY]
            forecast = usual[-DAY:] + fit.lasts[i] * rest[i, -DAY - h : -h]
            mine, lower, upper = (forecaster.demand(forecast + error, fit.shift) for error in (0, fit.low[i], fit.high[i]))
            off.append(np.vstack([came, np.abs(mine - came), np.abs(last - came), np.abs(before - came), came > upper, came < lower]))
    print(f"| minutes ahead | {model} | last value | day before | {model} / last value | above the band | below |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for h, off in found.items():
        known = np.hstack(off)
        came, mine, last, before, above, below = known[:, ~np.isnan(known).any(axis=0)].mean(axis=1)
        shares = " | ".join(f"{100 * x:.1f} %" for x in (mine / came, last / came, before / came))
        print(f"| {h * STEP} | {shares} | {mine / last:.3f} | {100 * above:.1f} % | {100 * below:.1f} % |")
    print(f"An hour ahead it abstains on {abstains} of {len(days)} days.")


def config(model: str, scale: str) -> Config:
    """Returns the default configuration for a series of 5 minutes and a horizon of an hour."""
    data = {
        "prometheus": {"url": "http://127.0.0.1:9090"},
        "horizon": "1h",
        "step": f"{STEP}m",
        "model": model,
        "prophet": {"scale": scale},
        "rules": (),
    }
    return Config.model_validate(data)


if __name__ == "__main__":
    main()
