"""What several tests need: a configuration, and a source that plays series."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
import yaml

from weir_advisor.config import Config, parse
from weir_advisor.prometheus import SourceError, empty
from weir_advisor.service import Service

REPOSITORY = Path(__file__).parents[3]
RULE: dict[str, Any] = {"rule": "api", "limit": "60/1m", "floor": "30/1m", "ceiling": "400/1m"}


MODELS = ["prophet", "ets"]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    """Each model in turn."""
    return str(request.param)


def configured(folder: Path = Path(), rule: dict[str, Any] | None = None, **fields: Any) -> Config:
    """A configuration with short series, so that fits are quick."""
    data = {
        "prometheus": {"url": "http://127.0.0.1:9"},
        "history": "6d",
        "step": "15m",
        "horizon": "1h",
        "rules": [{**RULE, **(rule or {})}],
        **fields,
    }
    return parse(yaml.safe_dump(data), folder)


class Played:
    """A source. Its series are a function of Unix time; its values are by query. It counts what is asked."""

    def __init__(self, demand: Callable[[float], float], values: dict[str, float] | None = None) -> None:
        self.demand, self.values = demand, values or {}
        self.asked: list[tuple[int, int]] = []
        self.down = False

    def series(self, query: str, start: int, end: int, step: int) -> pd.Series[float]:
        if self.down:
            raise SourceError("Prometheus is away")
        self.asked.append((start, end))
        found = empty(start, end, step)
        return pd.Series([self.demand(time) for time in range(start, end + 1, step)], index=found.index)

    def value(self, query: str, at: float) -> float | None:
        return self.values.get(query)


def ask(service: Service, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> httpx.Response:
    """Asks a service, without a socket."""

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(service.application())
        async with httpx.AsyncClient(transport=transport, base_url="http://advisor") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(request())


def seasonal(time: float) -> float:
    """Demand that has a day, and some noise."""
    wobble = math.sin(time * 12.9898) * 43758.5453
    return 100 + 30 * math.sin(2 * math.pi * time / 86_400) + 4 * (wobble - math.floor(wobble) - 0.5)
