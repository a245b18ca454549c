"""Reads advisor.yaml, strictly: an error names the file, the line and the field, and says what would be right.

Durations are ``timedelta``. Limits are whole requests in a period of microseconds, or of the calendar.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

MOST_REQUESTS = 1_000_000_000
ALGORITHMS = ("token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter")
BUCKETS = ("token_bucket", "leaky_bucket")
PROPHETS_OWN = (  # fields of the section prophet that only Prophet honours
    "growth",
    "changepoints",
    "n_changepoints",
    "changepoint_range",
    "changepoint_prior_scale",
    "seasonality_prior_scale",
    "holidays",
    "holidays_prior_scale",
    "country",
)
CALENDAR = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=31)}
_UNITS = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6, "d": 86_400e6}
_DURATION = re.compile(r"(\d+d)?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*")


class ConfigError(Exception):
    """advisor.yaml is wrong. The text has a line for each thing that is."""


def duration(text: object) -> timedelta:
    """Reads a duration in Go's syntax, with days allowed in front: 90s, 1h30m, 14d. Raises ValueError."""
    if isinstance(text, timedelta):
        return text
    if not isinstance(text, str) or not text or not _DURATION.fullmatch(text):
        raise ValueError("must be a duration such as 10s, 5m, 24h or 14d")
    parts = re.findall(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h|d)", text)
    return timedelta(microseconds=sum(float(n) * _UNITS[unit] for n, unit in parts))


class Limit(NamedTuple):
    """So many requests in a period. ``unit`` is day, week or month if the period follows the calendar, else empty."""

    requests: int
    period: timedelta
    unit: str = ""


def limit(text: object) -> Limit:
    """Reads a limit as rules have it: 100/1m, 5/10s, 1000/day. Raises ValueError."""
    if isinstance(text, Limit):
        return text
    number, slash, period = text.partition("/") if isinstance(text, str) else ("", "", "")
    if not slash or not re.fullmatch(r"[1-9]\d{0,9}", number) or int(number) > MOST_REQUESTS:
        raise ValueError(f"must be <requests>/<period>, such as 100/1m, with 1 to {MOST_REQUESTS} requests")
    if period in CALENDAR:
        return Limit(int(number), CALENDAR[period], period)
    try:
        length = duration(period)
    except ValueError:
        raise ValueError("its period must be a duration such as 10s or 1m, or day, week or month") from None
    if not timedelta(milliseconds=1) <= length <= timedelta(days=366):
        raise ValueError("its period must be from 1ms to 366d")
    return Limit(int(number), length)


def _between(least: timedelta, most: timedelta, words: str) -> BeforeValidator:
    def check(text: object) -> timedelta:
        length = duration(text)
        if not least <= length <= most:
            raise ValueError(f"must be from {words}")
        return length

    return BeforeValidator(check)


def _zone(name: object) -> str:
    try:
        return ZoneInfo(str(name)).key
    except (OSError, ValueError, KeyError):
        raise ValueError("must be a time zone such as UTC or Europe/Berlin") from None


def _url(text: object) -> str:
    parts = urlsplit(str(text))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address such as http://127.0.0.1:9090")
    return str(text).rstrip("/")


def _label(text: object) -> object:
    if isinstance(text, str) and not re.fullmatch(r"[\w.-]{1,64}(/[\w.-]{1,64})?", text, re.ASCII):
        raise ValueError("must be a label as metrics have it, such as api or shop/login")
    return text


_Turn = Annotated[timedelta, _between(timedelta(seconds=1), timedelta(days=1), "1s to 24h")]
_Path = Annotated[Path, BeforeValidator(lambda text: Path(text) if isinstance(text, str) and text else text)]
_Zone = Annotated[str, BeforeValidator(_zone)]
_Limit = Annotated[Limit, BeforeValidator(limit)]
_Algorithm = Literal["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TLS(_Section):
    """The certificate of the service. With ``client_ca``, clients need one that this authority has issued."""

    certificate: _Path
    key: _Path
    client_ca: _Path | None = None


class PrometheusConfig(_Section):
    """Where the history is. ``selector`` is added to the labels of Weir's metrics, such as job="caddy"."""

    url: Annotated[str, BeforeValidator(_url)]
    token: str = ""
    selector: str = ""
    timeout: Annotated[timedelta, _between(timedelta(milliseconds=1), timedelta(hours=1), "1ms to 1h")] = timedelta(seconds=10)


class PressureConfig(_Section):
    """How busy the service is: the value of ``query``, PromQL that returns one series. While it is ``high`` or more, no limit
    above the configured one is advised."""

    query: Annotated[str, Field(min_length=1)]
    high: Annotated[float, Field(ge=1e-6, le=1e12)] = 0.9


class Holiday(_Section):
    """Days on which demand is unlike that of other days. The windows are days before (0 or less) and after each date."""

    name: Annotated[str, Field(min_length=1)]
    dates: Annotated[tuple[date, ...], Field(strict=False, min_length=1)]
    lower_window: Annotated[int, Field(ge=-30, le=0)] = 0
    upper_window: Annotated[int, Field(ge=0, le=30)] = 0


class ProphetConfig(_Section):
    """Settings of Prophet, by its own names, and of all models. The Go advisor ignores the section. PROPHETS_OWN are refused with another model.

    On the ``scale`` log, trend, season and errors multiply; on linear they add. ``country`` adds its public holidays
    (ISO 3166 code). ``time_zone`` is that of the days. ``refit`` is how often models are fitted anew. ``points`` is the
    most values that a model is fitted to: of a longer history, means of neighbours. ``folds`` is how many models test the
    skill. ``state`` is the folder of what is kept.
    """

    growth: Literal["linear", "flat"] = "linear"
    changepoints: Annotated[tuple[date, ...], Field(strict=False)] = ()
    n_changepoints: Annotated[int, Field(ge=0, le=200)] = 25
    changepoint_range: Annotated[float, Field(gt=0, le=1)] = 0.8
    changepoint_prior_scale: Annotated[float, Field(gt=0, le=100)] = 0.05
    scale: Literal["log", "linear"] = "log"
    seasonality_prior_scale: Annotated[float, Field(gt=0, le=1000)] = 10.0
    fourier_order: Annotated[int, Field(ge=1, le=50)] = 10
    weekly: bool | None = None
    holidays: Annotated[tuple[Holiday, ...], Field(strict=False)] = ()
    holidays_prior_scale: Annotated[float, Field(gt=0, le=1000)] = 10.0
    country: Annotated[str, Field(pattern="^([A-Z]{2})?$")] = ""
    time_zone: _Zone = "UTC"
    refit: _Turn = timedelta(hours=1)
    points: Annotated[int, Field(ge=100, le=100_000)] = 2000
    folds: Annotated[int, Field(ge=2, le=10)] = 3
    state: _Path = Path("advisor-state")


class Rule(_Section):
    """An adaptable rule: what the proxies have of it, and how its demand is found.

    ``floor`` is the limit if it is not written. ``demand`` is key (that of a key at ``quantile``, the default), total, or
    query: what ``query``, a PromQL text, returns in requests a second. ``headroom`` multiplies the forecast. ``abuse``
    allows thresholds, ``lower`` limits below the configured one.
    """

    rule: Annotated[str, BeforeValidator(_label)]
    limit: _Limit
    time_zone: _Zone = "UTC"
    algorithm: _Algorithm | None = None
    burst: Annotated[int, Field(ge=0, le=MOST_REQUESTS)] = 0
    floor: _Limit | None = None
    ceiling: _Limit
    algorithms: Annotated[tuple[_Algorithm, ...], Field(strict=False)] = ()
    demand: Literal["key", "total", "query"] | None = None
    query: str = ""
    quantile: Annotated[float, Field(ge=0.5, le=0.9999)] = 0.99
    headroom: Annotated[float, Field(ge=1, le=10)] = 1.2
    abuse: bool = False
    lower: bool = False

    @model_validator(mode="after")
    def _bounds(self) -> Rule:
        for name, bound in (("floor", self.least), ("ceiling", self.ceiling)):
            if bound[1:] != self.limit[1:]:
                raise ValueError(f"{name}: must have the period of limit")
        if not self.least.requests <= self.limit.requests <= self.ceiling.requests:
            raise ValueError("floor, limit and ceiling: each must be at least the one before")
        if self.burst and self.in_use not in BUCKETS:
            raise ValueError("burst: only token_bucket and leaky_bucket have one")
        if (self.demand in (None, "query")) < bool(self.query) or (self.demand == "query") > bool(self.query):
            raise ValueError("query: demand query needs it, and no other has it")
        return self

    @property
    def least(self) -> Limit:
        """The floor, or the limit without one."""
        return self.floor or self.limit

    @property
    def asks(self) -> str:
        """What the demand is: key, total or query."""
        return self.demand or ("query" if self.query else "key")

    @property
    def in_use(self) -> str:
        """The configured algorithm, or the one that rules have without."""
        return self.algorithm or ("fixed_window" if self.limit.unit else "sliding_window_counter")

    @property
    def period(self) -> float:
        """The limit's period in seconds; of the calendar, the longest that its unit can be."""
        return self.limit.period.total_seconds()

    def line(self) -> str:
        """Returns the rule's line of the text that the digest is of."""
        period = f"{self.limit.unit}@{self.time_zone}" if self.limit.unit else str(self.limit.period // timedelta(microseconds=1))
        burst = (self.burst or self.limit.requests) if self.in_use in BUCKETS else 0
        allowed = ",".join(sorted({self.in_use, *self.algorithms}))
        numbers = (self.limit.requests, period, burst, self.in_use, self.least.requests, self.ceiling.requests)
        return "\t".join([self.rule, *map(str, numbers), allowed]) + "\n"


def digest(rules: tuple[Rule, ...]) -> str:
    """Returns the digest of the adaptable rules, by which a proxy and an advisor know that they mean the same."""
    text = "".join(rule.line() for rule in sorted(rules, key=lambda rule: rule.rule.encode()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class Config(_Section):
    """All of advisor.yaml. Paths are relative to the file. ``model`` is what forecasts."""

    listen: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:]+\]|[^:\s]*):\d{1,5}$")] = "127.0.0.1:8787"
    fleet: Annotated[str, Field(max_length=128)] = ""
    token: str = ""
    token_file: _Path | None = None
    private_key: _Path | None = None
    tls: TLS | None = None
    prometheus: PrometheusConfig
    history: Annotated[timedelta, _between(timedelta(minutes=1), timedelta(days=366), "1m to 366d")] = timedelta(days=14)
    step: _Turn = timedelta(minutes=1)
    season: Annotated[timedelta, _between(timedelta(seconds=4), timedelta(days=31), "4s to 31d")] = timedelta(days=1)
    horizon: Annotated[timedelta, _between(timedelta(seconds=1), timedelta(days=7), "1s to 168h")] = timedelta(minutes=10)
    interval: _Turn = timedelta(minutes=1)
    expires: _Turn = timedelta(minutes=10)
    minimum_skill: Annotated[float, Field(ge=0, le=1)] = 0.05
    model: Literal["prophet", "ets"] = "prophet"
    prophet: ProphetConfig = ProphetConfig()
    pressure: PressureConfig | None = None
    rules: Annotated[tuple[Rule, ...], Field(strict=False, max_length=10_000)]
    folder: Path = Path()  # of the file; not in it

    @model_validator(mode="after")
    def _whole(self) -> Config:
        labels = [rule.rule for rule in self.rules]
        second = timedelta(seconds=1)
        for wrong, words in (
            (len(set(labels)) < len(labels), f"rules: duplicate rule {max(labels, key=labels.count, default='')!r}"),
            (bool(self.token and self.token_file), "token, token_file: write one of them"),
            (self.step % second != timedelta(), "step: must be whole seconds"),
            (bool(self.season % self.step) or self.season < 4 * self.step, "season: must be a multiple of step, and at least four of it"),
            (bool(self.horizon % self.step) or self.horizon > self.season, "horizon: must be a multiple of step, and not longer than season"),
            (self.expires < self.interval, "expires: must not be shorter than interval, or nothing is valid in between"),
            (self.history > 500_000 * self.step, "history: must be at most 500,000 steps"),
        ):
            if wrong:
                raise ValueError(words)
        return self

    def secret(self) -> str:
        """Returns the token that proxies must send, from its file if there is one, or "". Raises OSError."""
        return self.token if self.token_file is None else (self.folder / self.token_file).read_text().strip()


class _Lines(yaml.SafeLoader):
    """Reads YAML, refuses duplicate fields, and notes the line of each field and element by its path."""

    def lines(self, node: yaml.Node, path: tuple[str | int, ...], found: dict[tuple[str | int, ...], int]) -> None:
        found.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*path, str(key.value))
                if here in found:
                    raise ConfigError(f"line {key.start_mark.line + 1}: {_name(here)}: duplicate field, first in line {found[here]}")
                found[here] = key.start_mark.line + 1
                self.lines(value, here, found)
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                self.lines(value, (*path, i), found)


def _name(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")


def _environment(value: Any) -> Any:
    """Replaces texts that are ${NAME} alone by the environment's values, in all of a document."""
    if isinstance(value, dict):
        return {key: _environment(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_environment(v) for v in value]
    if isinstance(value, str) and (name := re.fullmatch(r"\$\{(\w+)\}", value)):
        if not os.environ.get(name[1]):
            raise ConfigError(f"{value}: the environment has no {name[1]}, or an empty one")
        return os.environ[name[1]]
    return value


def _fields(path: tuple[str | int, ...]) -> list[str]:
    """Returns the fields of the section at a path."""
    sections: dict[str, type[BaseModel]] = {
        "rules": Rule,
        "prometheus": PrometheusConfig,
        "pressure": PressureConfig,
        "prophet": ProphetConfig,
        "tls": TLS,
        "holidays": Holiday,
    }
    names = [p for p in path if isinstance(p, str)]
    section = sections.get(names[-1], Config) if names else Config
    return [name for name in section.model_fields if name != "folder"]


def _problem(error: Any, lines: dict[tuple[str | int, ...], int]) -> str:
    path = tuple(error["loc"])
    while path and path not in lines and error["type"] != "missing":
        path = path[:-1]
    line = lines.get(path) or lines.get(path[:-1]) or 1
    if error["type"] == "extra_forbidden":
        known = _fields(path[:-1])
        near = difflib.get_close_matches(str(path[-1]), known, 1)
        return f"line {line}: {_name(path)}: unknown field; " + (f"did you mean {near[0]}?" if near else "known are " + ", ".join(known))
    if error["type"] == "missing":
        return f"line {line}: {_name(path)}: is missing"
    if error["type"] == "model_type":
        return f"line {line}: {_name(path)}: must be a section with some of the fields {', '.join(_fields(path))}"
    words = error["msg"].removeprefix("Value error, ").replace("Input should", "must")
    shown = "" if isinstance(error["input"], (dict, list, BaseModel)) or path[-1:] == ("token",) else f" {str(error['input'])!r}"
    return f"line {line}: {_name(path)}{shown}: {words}" if path else f"line {line}: {words}"


def parse(text: str, folder: Path = Path()) -> Config:
    """Reads the text of an advisor.yaml; ``folder`` is that of the file. Raises ConfigError with a line for each mistake."""
    lines: dict[tuple[str | int, ...], int] = {}
    loader = _Lines(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError("line 1: must be fields such as listen, prometheus and rules")
        loader.lines(node, (), lines)
        data = _environment(loader.construct_document(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError(f"line {mark.line + 1 if mark else 1}: {error.problem or 'is no YAML'}") from None
    finally:
        loader.dispose()
    if "folder" in data:
        raise ConfigError(f"line {lines.get(('folder',), 1)}: folder: unknown field; known are " + ", ".join(_fields(())))
    try:
        config = Config.model_validate({**data, "folder": folder})
        written = [name for name in PROPHETS_OWN if config.model != "prophet" and name in config.prophet.model_fields_set]
        if written:
            wrong = "is of the model prophet alone: remove it, or write model: prophet"
            block = lines.get(("prophet",), 1)  # that of a field that a merge key brings
            raise ConfigError("\n".join(f"line {lines.get(('prophet', name), block)}: prophet.{name}: {wrong}" for name in written))
        return config
    except ValidationError as error:
        raise ConfigError("\n".join(_problem(e, lines) for e in error.errors())) from None


def load(path: Path) -> Config:
    """Reads advisor.yaml. Raises ConfigError, whose lines begin with the path."""
    try:
        return parse(path.read_text(), path.parent)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None
