"""The HTTP service: what GET /v1/advice, /healthz and /metrics answer, and the thread that computes."""

from __future__ import annotations

import hmac
import logging
import re
import signal
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from weir_advisor.advice import Published, rfc3339
from weir_advisor.advisor import Advisor
from weir_advisor.config import Config, digest
from weir_advisor.demand import Outcome
from weir_advisor.prometheus import Prometheus, Source, SourceError

log = logging.getLogger("weir_advisor")
BUCKETS = [0.01 * 4**i for i in range(8)]  # seconds


@dataclass(frozen=True)
class State:
    """What requests see of the computing thread, replaced as a whole. Times are Unix seconds; ``error`` is that of the last turn."""

    published: Published | None = None
    computed: float | None = None
    error: str = ""
    again: bool = False  # the next turn may soon do better


class Metrics:
    """The service's own metrics, in a registry of their own, with the names that the advisor in Go has."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("weir_advisor_requests", "Requests for advice, by the status of the answer.", ["status"], registry=registry)
        self.computations = Counter("weir_advisor_computations", "Computations, by outcome: ok or error.", ["outcome"], registry=registry)
        self.duration = Histogram("weir_advisor_computation_duration_seconds", "How long computations took.", registry=registry, buckets=BUCKETS)
        self.issued = Gauge("weir_advisor_issued_timestamp_seconds", "When the last document was issued; 0: there is none yet.", registry=registry)
        self.serial = Gauge("weir_advisor_serial", "The serial of the last document; 0: there is none yet.", registry=registry)
        self.demand = Gauge("weir_advisor_demand", "The last demand, in requests in the limit's period.", ["rule"], registry=registry)
        self.forecast = Gauge(
            "weir_advisor_forecast", "The forecast of that demand: mean, lower and upper bound.", ["rule", "bound"], registry=registry
        )
        self.skill = Gauge(
            "weir_advisor_skill", "1 - the forecast's error / that of the last value, and of the mean.", ["rule", "versus"], registry=registry
        )
        self.limit = Gauge("weir_advisor_limit", "The limit that is advised; the configured one if none is.", ["rule"], registry=registry)
        self.abstains = Gauge("weir_advisor_abstains", "1 for the reason for which nothing is advised.", ["rule", "reason"], registry=registry)

    def turn(self, config: Config, published: Published, outcomes: list[Outcome], now: float) -> None:
        """Sets the gauges to what a turn found."""
        self.issued.set(now)
        self.serial.set(published.serial)
        for gauge in (self.demand, self.limit, self.skill, self.forecast, self.abstains):
            gauge.clear()
        for rule, found in zip(config.rules, outcomes, strict=True):
            limit = (found.advised or {}).get("limit")
            self.limit.labels(rule.rule).set(limit["requests"] if isinstance(limit, dict) else rule.limit.requests)
            if found.why:
                self.abstains.labels(rule.rule, found.why).set(1)
            for versus, skill in (("last", found.skill_vs_last), ("mean", found.skill_vs_mean)):
                if skill is not None:
                    self.skill.labels(rule.rule, versus).set(skill)
            if found.band and found.value is not None:
                self.demand.labels(rule.rule).set(found.value)
                for bound in ("lower", "mean", "upper"):
                    self.forecast.labels(rule.rule, bound).set(getattr(found.band, bound))


class _Server(uvicorn.Server):
    """Leaves signals to the service: uvicorn's own handlers would end the process by the signal, before the thread has ended."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Changes no handlers."""
        yield


class Service:
    """Serves the last document, and computes a new one each interval in a thread of its own."""

    def __init__(self, config: Config, source: Source, clock: Callable[[], float] = time.time) -> None:
        self._config, self._source, self._clock = config, source, clock
        self._token = config.secret()
        self._digest = digest(config.rules)
        self._ends = threading.Event()
        self._advisor = Advisor(config, source)
        self.state = State()
        self.metrics = Metrics()

    RETRY = 30.0  # seconds after an error until the next turn at the latest: Prometheus may only have started later

    def turn(self) -> None:
        """Computes once. An error keeps the last document, until it expires."""
        now, begun = self._clock(), time.perf_counter()
        try:
            published, outcomes = self._advisor.turn(now)
        except Exception as error:  # whatever a turn meets, the next may do better
            log.error("nothing is computed: %s", error, exc_info=not isinstance(error, SourceError))
            self.state = State(self.state.published, self.state.computed, str(error) or type(error).__name__, True)
            self.metrics.computations.labels("error").inc()
        else:
            self.state = State(published, now, "; ".join(self._advisor.trouble), self._advisor.unread)
            self.metrics.computations.labels("error" if self._advisor.trouble else "ok").inc()
            self.metrics.turn(self._config, published, outcomes, now)
        self.metrics.duration.observe(time.perf_counter() - begun)

    def _turns(self) -> None:
        while not self._ends.is_set():
            self.turn()
            self._ends.wait(self.pause())

    def pause(self) -> float:
        """Returns how many seconds after a turn the next one begins: with the next whole interval of the clock, or soon after an error."""
        interval = self._config.interval.total_seconds()
        pause = interval - self._clock() % interval
        return min(pause, self.RETRY) if self.state.again else pause

    def _current(self) -> Published | None:
        published = self.state.published
        return published if published and self._clock() < published.expires else None

    def _problem(self, status: int, title: str, detail: str, headers: dict[str, str] | None = None, **more: str) -> Response:
        body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
        return JSONResponse(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/problem+json")

    def _answer(self, request: Request) -> Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if self._token and not (hmac.compare_digest(token.encode(), self._token.encode()) and scheme.lower() == "bearer"):
            return self._problem(401, "Unauthorized", "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        fleet = request.query_params.get("fleet", "")
        if fleet != self._config.fleet:
            return self._problem(404, "Not Found", f"the fleet {fleet!r} is unknown")
        if request.headers.get("Weir-Config") not in (None, "", self._digest):
            detail = "the proxy's adaptable rules are not those of the advisor: compare their limits, bounds and algorithms"
            return self._problem(409, "Conflict", detail, config=self._digest)
        published = self._current()
        if published is None:
            wait = str(max(1, round(self._config.interval.total_seconds())))
            return self._problem(503, "Service Unavailable", "no advice is computed yet", {"Retry-After": wait})
        headers = {"ETag": published.etag, "Cache-Control": "no-store"}
        tags = request.headers.get("If-None-Match", "")
        if tags.strip() == "*" or published.etag in re.findall(r'(?:W/)?("[^"]*")', tags):
            return Response(None, 304, headers)
        if published.signature:
            headers["Weir-Signature"] = published.signature
        return Response(published.body, 200, headers, "application/json")

    async def _advice(self, request: Request) -> Response:
        answer = self._answer(request)
        self.metrics.requests.labels(str(answer.status_code)).inc()
        return answer

    async def _health(self, _: Request) -> Response:
        state, current = self.state, self._current()
        body = {
            "status": "unavailable" if current is None else "failing" if state.error else "ok",
            "computed": rfc3339(state.computed) if state.computed is not None else None,
            "serial": state.published.serial if state.published else 0,
            "error": state.error,
        }
        return JSONResponse(body, 200 if current else 503, {"Cache-Control": "no-store"})

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self.metrics.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    def application(self) -> Starlette:
        """Returns the endpoints as an ASGI application. It does not start the computing thread."""
        paths = (("/v1/advice", self._advice), ("/healthz", self._health), ("/metrics", self._metrics))
        return Starlette(routes=[Route(path, answer, methods=["GET"]) for path, answer in paths])

    def serve(self) -> None:
        """Computes and serves until a signal ends it (SIGINT, SIGTERM); requests under way are answered first."""
        address, _, port = self._config.listen.rpartition(":")
        tls = self._config.tls
        options = uvicorn.Config(
            self.application(),
            host=address.strip("[]") or "0.0.0.0",  # noqa: S104
            port=int(port),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=10,
            ssl_certfile=self._config.folder / tls.certificate if tls else None,
            ssl_keyfile=self._config.folder / tls.key if tls else None,
            ssl_ca_certs=str(self._config.folder / tls.client_ca) if tls and tls.client_ca else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
        )
        server = _Server(options)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(server, "should_exit", True))
        turns = threading.Thread(target=self._turns, name="turns", daemon=True)
        turns.start()
        log.info("advice for fleet %r on %s, %d rules, %s", self._config.fleet, self._config.listen, len(self._config.rules), self._digest)
        try:
            server.run()
        finally:
            self._ends.set()
            turns.join(10)  # a fit that takes longer ends with the process


def serve(config: Config) -> None:
    """Runs the service on the Prometheus of advisor.yaml. Raises OSError or ValueError if a file of it cannot be used."""
    source = Prometheus(config)
    try:
        Service(config, source).serve()
    finally:
        source.close()
