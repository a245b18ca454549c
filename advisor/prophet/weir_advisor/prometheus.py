"""Reads the past from Prometheus.

Series are pandas Series of float64 by time in UTC, one value at each whole step. A value that is not known is NaN: a gap.
"""

from __future__ import annotations

import math
from typing import Protocol

import httpx
import pandas as pd

from weir_advisor.config import Config

MOST_POINTS = 11_000  # of a series in one answer: Prometheus's own limit


class SourceError(Exception):
    """The past cannot be read."""


class Source(Protocol):
    """Where series and values come from."""

    def series(self, query: str, start: int, end: int, step: int) -> pd.Series[float]:
        """Returns the values of a query at start, start + step … end (Unix seconds). Raises SourceError."""

    def value(self, query: str, at: float) -> float | None:
        """Returns a query's value at a time, or None if it has none. Raises SourceError."""


def empty(start: int, end: int, step: int) -> pd.Series[float]:
    """Returns a series of gaps from start to end, both included (Unix seconds)."""
    times = pd.date_range(pd.Timestamp(start, unit="s", tz="UTC"), pd.Timestamp(end, unit="s", tz="UTC"), freq=f"{step}s")
    return pd.Series(math.nan, index=times, dtype="float64")


class Prometheus:
    """A client of Prometheus's HTTP API. It keeps connections, and is used by one thread. close ends it."""

    def __init__(self, config: Config) -> None:
        settings = config.prometheus
        self._client = httpx.Client(
            base_url=settings.url + "/api/v1/",
            headers={"Authorization": f"Bearer {settings.token}"} if settings.token else {},
            timeout=settings.timeout.total_seconds(),
        )

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _ask(self, path: str, **fields: str) -> list[tuple[float, float]]:
        """Returns the samples that a query has: times (Unix seconds) and values. Raises SourceError."""
        try:
            answer = self._client.post(path, data=fields)
            body = answer.json()
            if answer.status_code != 200 or body["status"] != "success":
                raise SourceError(f"Prometheus answers {answer.status_code}: {body.get('error', '')}")
            found = body["data"]["result"]
            if body["data"]["resultType"] == "scalar":
                found = [{"value": found}]
            if len(found) > 1:
                raise SourceError(f"{fields['query']}: has {len(found)} series; a query must have one, such as sum(…)")
            samples = [sample for series in found for sample in (series["values"] if "values" in series else [series["value"]])]
            return [(float(time), _number(text)) for time, text in samples]
        except httpx.HTTPError as error:
            raise SourceError(f"Prometheus at {self._client.base_url}: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(f"Prometheus at {self._client.base_url} does not answer as Prometheus does") from error

    def series(self, query: str, start: int, end: int, step: int) -> pd.Series[float]:
        """Returns the values of a query, in parts of at most 11,000 points. NaN from Prometheus is 0: a histogram in
        which nothing was counted. No value is a gap, and so is one that is infinite."""
        found = empty(start, end, step)
        values = found.to_numpy(copy=True)
        for first in range(start, end + 1, MOST_POINTS * step):
            last = min(end, first + (MOST_POINTS - 1) * step)
            for time, value in self._ask("query_range", query=query, start=str(first), end=str(last), step=str(step)):
                if first <= time <= last:
                    values[round((time - start) / step)] = value
        return pd.Series(values, index=found.index)

    def value(self, query: str, at: float) -> float | None:
        """Returns the value of a query that has one series, at a time."""
        for _, value in self._ask("query", query=query, time=f"{at:.3f}"):
            return None if math.isnan(value) else value
        return None


def _number(text: str) -> float:
    """Returns a sample's value: 0 for what is no number, and a gap for what is infinite."""
    value = float(text)
    if math.isnan(value):
        return 0.0
    return value if math.isfinite(value) else math.nan


class History:
    """The last ``length`` seconds of a query's values, of which each read fetches only what is new."""

    RENEWED = 5  # the steps that are read again: they may have been read before Prometheus had scraped them

    def __init__(self, source: Source, query: str, length: int, step: int) -> None:
        self._source, self._query, self._length, self._step = source, query, length, step
        self._known: pd.Series[float] | None = None

    def read(self, now: float) -> pd.Series[float]:
        """Returns the values up to the last whole step before now (Unix seconds). Raises SourceError."""
        step = self._step
        end = math.floor(now / step) * step
        start = end - (self._length // step - 1) * step
        known = self._known
        if known is not None and start < int(known.index[-1].timestamp()) <= end:
            since = int(known.index[-1].timestamp()) - (self.RENEWED - 1) * step
            news = self._source.series(self._query, max(since, start), end, step)
            known = pd.concat([known.loc[known.index < news.index[0]], news]).iloc[-(self._length // step) :]
        else:
            known = self._source.series(self._query, start, end, step)
        self._known = known
        return known
