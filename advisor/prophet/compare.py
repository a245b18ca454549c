"""Compares models' forecasts with the last value and the same time of the day before, and writes what README.md says of them.

python compare.py [MODEL [SERIES]] plays one of holt-winters, prophet and ets, or all, on one of the series, or all (prophet on worldcup on both
scales), and replaces what comparison.csv has of it. Of a model that it plays on all it replaces the line of costs.csv, too. Then it writes the
section of README.md anew, as a test expects it. All of it takes some minutes. The series are

- worldcup: the requests to the 1998 World Cup's site, in testdata/worldcup;
- day: 28 days with the same season each, and noise;
- bursts: the same, and on average two bursts a day at times that nobody can know, which halve in 30 minutes;
- walk: a random walk.

For each day a model is fitted to the 14 days before it, and then forecasts at each 5 minutes of the day, 5, 30 and 60 minutes ahead. holt-winters is
the advisor in Go, of which TestForecastsBeatTheLastValueWhereThatCanBe in advisor/worldcup_test.go tells the same.
"""

from __future__ import annotations

import csv
import functools
import gzip
import multiprocessing
import re
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from weir_advisor.config import Config
from weir_advisor.forecast import Forecaster

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "testdata/worldcup/requests-in-5-minutes.txt.gz"
STEP, DAY = 5, 288
LEADS = 1, 6, 12  # steps ahead
MODELS = {"holt-winters": "Holt-Winters", "prophet": "Prophet", "ets": "ets"}
SERIES = "worldcup", "day", "bursts", "walk"
SECTION = re.compile(r"(?<=<!-- compare.py writes this\. -->\n\n).*?(?=\n\n<!-- Until here\. -->)", re.DOTALL)


class Row(NamedTuple):
    """How far forecasts of a series were off, as comparison.csv has it."""

    model: str
    series: str
    scale: str  # that is forecast: log or linear
    minutes: int  # ahead
    error: float  # mean absolute errors of the forecasts, in per cent of the mean demand,
    last: float  # of the last value,
    before: float  # and of the same time of the day before
    above: float  # values above the forecast's band, in per cent,
    below: float  # and below it
    abstains: int  # days on which the test of the model, an hour ahead with Python and as far as the row with Go, did not show enough skill,
    days: int  # of so many

    @property
    def ratio(self) -> float:
        """The error as a part of the last value's."""
        return self.error / self.last

    @property
    def within(self) -> float:
        """The values within the band, in per cent."""
        return 100 - self.above - self.below


class Cost(NamedTuple):
    """What a model costs at 14 days and a step of a minute, as costs.csv has it."""

    model: str
    start_s: float  # seconds of CPU, also of its processes, to start,
    fit_s: float  # for a fit with its tests,
    forecast_ms: float  # and milliseconds for a forecast
    memory_mb: int  # the most of the advisor's own process


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


def cost(model: str) -> Cost:
    """Returns what a model costs. It is to be called in a process of its own, which has done nothing else."""
    y = pd.Series(generated("day", 14 * 1440, 1440), pd.date_range("2026-11-02T00:00Z", periods=14 * 1440, freq="1min"))
    forecaster = Forecaster(Config.model_validate({"prometheus": {"url": "http://127.0.0.1:9090"}, "model": model, "rules": ()}))
    started, forecasts = cpu(), 20
    fit = forecaster.fit(y, 0)
    fitted = cpu()
    for _ in range(forecasts):
        forecaster.ahead(fit, y)
    took, memory = cpu() - fitted, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Cost(model, round(started, 1), round(fitted - started, 1), round(1000 * took / forecasts), memory)


@functools.cache
def in_go() -> list[Row]:
    """Returns what the test of the advisor in Go says of all series."""
    test = ["go", "test", "./advisor", "-run", "BeatTheLastValue", "-v", "-count=1"]
    told = subprocess.run(test, cwd=HERE.parents[1], check=False, capture_output=True, text=True).stdout  # noqa: S603 - it fails if the table is another
    if not (found := rows(re.findall(r"^ .*: (holt-winters,\S+)$", told, re.MULTILINE))):
        raise SystemExit(told)
    return found


def play(model: str, name: str, scale: str) -> list[Row]:
    """Returns how far forecasts of a series are off."""
    if model == "holt-winters":
        return [row for row in in_go() if row.series == name]
    y = series(name)
    forecaster = Forecaster(config(model, scale))
    found: dict[int, list[np.ndarray]] = {lead: [] for lead in LEADS}
    abstains = 0
    days = range(14 * DAY, len(y) - DAY + 1, DAY)
    for day in days:
        fit = forecaster.fit(y.iloc[day - 14 * DAY : day], 0)
        abstains += fit.skill is None or fit.skill < 0.05
        around = y.iloc[day - 2 * DAY - max(found) : day + DAY]
        usual, values = fit.model.usual(pd.DatetimeIndex(around.index)), around.to_numpy()
        rest = fit.model.rest(forecaster.scaled(values.astype(np.float64), fit.shift) - usual, fit.leads)
        for h, off in found.items():
            i = fit.leads.index(h)
            came, last, before = values[-DAY:], values[-DAY - h : -h], values[-2 * DAY : -DAY]
            forecast = usual[-DAY:] + fit.lasts[i] * rest[i, -DAY - h : -h]
            mine, lower, upper = (forecaster.demand(forecast + error, fit.shift) for error in (0, fit.low[i], fit.high[i]))
            off.append(np.vstack([came, np.abs(mine - came), np.abs(last - came), np.abs(before - came), came > upper, came < lower]))
    played = []
    for h, off in found.items():
        known = np.hstack(off)
        came, mine, last, before, above, below = known[:, ~np.isnan(known).any(axis=0)].mean(axis=1)
        error, error_of_last, error_of_before = (round(float(100 * x / came), 3) for x in (mine, last, before))
        outside = round(float(100 * above), 2), round(float(100 * below), 2)
        played.append(Row(model, name, scale, h * STEP, error, error_of_last, error_of_before, *outside, abstains, len(days)))
    return played


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


def rows(lines: Iterable[str]) -> list[Row]:
    """Returns the rows of a table's lines, without that of its names."""
    found = []
    for model, name, scale, minutes, *errors, abstains, days in csv.reader(lines):
        error, last, before, above, below = map(float, errors)
        found.append(Row(model, name, scale, int(minutes), error, last, before, above, below, int(abstains), int(days)))
    return found


def costs(lines: Iterable[str]) -> list[Cost]:
    """Returns the costs of a table's lines, without that of its names."""
    return [Cost(model, float(start), float(fit), float(forecast), int(memory)) for model, start, fit, forecast, memory in csv.reader(lines)]


def section(compared: list[Row], cost_of: list[Cost]) -> str:
    """Returns what README.md says of them."""
    log = {(row.series, row.minutes, row.model): row for row in compared if row.scale == "log"}
    lines = [f"| series | minutes ahead | last value | day before | {' | '.join(MODELS.values())} |", "| --- " * (4 + len(MODELS)) + "|"]
    for name in SERIES:
        for h in LEADS:
            of = [log[name, h * STEP, model] for model in MODELS]
            shown = " | ".join(f"{row.error:.1f} ({row.ratio:.2f})" for row in of)
            lines.append(f"| {name if h == LEADS[0] else ''} | {h * STEP} | {of[0].last:.1f} | {of[0].before:.1f} | {shown} |".replace("|  |", "| |"))
    hour = [log["worldcup", 60, model] for model in MODELS]
    abstain = ", ".join(f"{row.abstains} ({MODELS[row.model]})" for row in hour)
    least, most = (choose(log.values(), key=lambda row: row.within) for choose in (min, max))
    linear = next(row for row in compared if (row.scale, row.minutes) == ("linear", 30))
    lines += [
        "",
        f"An hour ahead on `worldcup` they abstain on {abstain} of {hour[0].days} days, on which their tests did not show enough skill. The",
        f"band is meant for 98 % of the values; from {least.within:.1f} % ({MODELS[least.model]} on `{least.series}`) to {most.within:.1f} %",
        f"({MODELS[most.model]} on `{most.series}`) were within it. Of Prophet, on the linear scale, errors on `worldcup` 30 minutes",
        f"ahead are {linear.ratio:.2f} times those of the last value.",
        "",
        "What it costs at 14 days and a step of a minute, in seconds of CPU: to start once, a fit with its tests each `prophet.refit`, and a",
        "forecast each `interval`. What Prophet's own process needs while it fits is in the seconds, and not in the memory.",
        "",
        "| model | to start | a fit | a forecast | memory |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {c.model} | {c.start_s:.1f} s | {c.fit_s:.1f} s | {c.forecast_ms:.0f} ms | {c.memory_mb} MB |" for c in cost_of),
    ]
    return "\n".join(lines)


def saved(file: Path, kind: type[NamedTuple]) -> list[str]:
    """Returns the lines of a table beside this file, without that of its names, which must be the fields of kind."""
    names, *lines = file.read_text().splitlines()
    if names != ",".join(kind._fields):
        raise ValueError(f"{file}: the first line is {names!r}, want {','.join(kind._fields)!r}")
    return lines


def main() -> None:
    """Plays what the command line names, and writes the tables and README.md's section."""
    models = sys.argv[1:2] or list(MODELS)
    names = sys.argv[2:3] or list(SERIES)
    if not (set(models) <= set(MODELS) and set(names) <= set(SERIES)):
        raise SystemExit(f"usage: compare.py [{'|'.join(MODELS)} [{'|'.join(SERIES)}]]")
    comparison, costing, readme = HERE / "comparison.csv", HERE / "costs.csv", HERE / "README.md"
    compared = {row[:4]: row for row in rows(saved(comparison, Row))}
    cost_of = {c.model: c for c in costs(saved(costing, Cost))}
    for model in models:
        for name in names:
            for scale in ("log", "linear") if (model, name) == ("prophet", "worldcup") else ("log",):
                compared |= {row[:4]: row for row in play(model, name, scale)}
        if model != "holt-winters" and not sys.argv[2:]:
            with multiprocessing.get_context("spawn").Pool(1) as process:
                cost_of[model] = process.apply(cost, (model,))
    for file, kind, table in ((comparison, Row, sorted(compared.values())), (costing, Cost, cost_of.values())):
        file.write_text("\n".join([",".join(kind._fields), *(",".join(map(str, row)) for row in table)]) + "\n")
    told = section(list(compared.values()), list(cost_of.values()))
    readme.write_text(SECTION.sub(lambda _: told, readme.read_text()))


if __name__ == "__main__":
    main()
