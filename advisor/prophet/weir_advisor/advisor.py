"""The turns of the advisor: in each it reads what is new, forecasts every rule, and makes a document."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from weir_advisor import advice, demand
from weir_advisor.config import Config, Rule, digest
from weir_advisor.forecast import Fit, Forecaster, TooShort
from weir_advisor.prometheus import History, Source, SourceError

log = logging.getLogger("weir_advisor")


@dataclass
class _Kept:
    """What is kept of a rule between turns. ``usual`` is when the usual values of its keys were read (Unix seconds)."""

    queries: demand.Queries
    history: History
    file: Path
    fit: Fit | None = None
    keys: demand.Keys = field(default_factory=demand.Keys)
    usual: float = -math.inf


class Advisor:
    """Computes advice from a source. Used by one thread. With ``keeps``, models and the last serial survive a restart."""

    def __init__(self, config: Config, source: Source, keeps: bool = True) -> None:
        self._config, self._source, self._keeps = config, source, keeps
        self._forecaster = Forecaster(config)
        self._folder = config.folder / config.prophet.state
        self._refit = config.prophet.refit.total_seconds()
        self._key = advice.private_key(config.folder / config.private_key) if config.private_key else None
        self.digest = digest(config.rules)
        length, step = int(config.history.total_seconds()), int(config.step.total_seconds())
        self._rules: list[tuple[Rule, _Kept]] = []
        for rule in config.rules:
            queries = demand.Queries.of(rule, config)
            file = self._folder / (quote(rule.rule, safe="") + ".model.json")
            self._rules.append((rule, _Kept(queries, History(source, queries.demand, length, step), file)))
        self._serial = self._renewals = 0
        self._pressed: bool | None = None  # whether the pressure is high in this turn; None: nobody has asked yet
        self.trouble: list[str] = []
        """What the last turn did not find out, though it has made a document."""
        self.unread = False
        """Whether that is of a rule whose past the source did not answer: the next turn may find it out."""
        if keeps:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._recall()

    def _recall(self) -> None:
        """Reads what an earlier run has left. What is broken is logged, and made anew."""
        try:
            self._serial = int((self._folder / "serial").read_text())
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning("%s: %s; serials go on from the clock", self._folder / "serial", error)
        for rule, kept in self._rules:
            try:
                kept.fit = self._forecaster.load(kept.file)
            except (OSError, ValueError) as error:
                log.warning("%s: the model of rule %r is broken, and fitted anew: %s", kept.file, rule.rule, error)

    def turn(self, now: float) -> tuple[advice.Published, list[demand.Outcome]]:
        """Computes the advice of a time (Unix seconds). Raises SourceError if no rule could be read."""
        outcomes = []
        failed: list[SourceError] = []
        self._pressed, self.trouble, self.unread = None, [], False
        # Of many rules, only some models are fitted anew in one turn, so that no document expires meanwhile.
        self._renewals = math.ceil(len(self._rules) * self._config.interval.total_seconds() / self._refit)
        for rule, kept in self._rules:
            try:
                outcomes.append(self._outcome(rule, kept, now))
            except SourceError as error:
                failed.append(error)
                self.unread = True
                self._miss(f"rule {rule.rule!r}: {error}")
                outcomes.append(demand.Outcome(rule.rule, None, "source"))
            except Exception as error:  # of its values; the other rules have theirs
                log.debug("rule %r", rule.rule, exc_info=True)
                self._miss(f"rule {rule.rule!r}: the model {self._config.model} cannot forecast it: {type(error).__name__}: {error}")
                outcomes.append(demand.Outcome(rule.rule, None, "skill"))
        if failed and len(failed) == len(outcomes):
            raise failed[0]
        return self._publish(now, outcomes), outcomes

    def _miss(self, what: str) -> None:
        """Notes and logs what is not found out in this turn."""
        self.trouble.append(what)
        log.error("%s", what)

    def _outcome(self, rule: Rule, kept: _Kept, now: float) -> demand.Outcome:
        past = kept.history.read(now)
        why = demand.lacking(past, self._config)
        if why:
            return demand.Outcome(rule.rule, None, why)
        past = past.loc[past.first_valid_index() :]
        old = kept.fit is not None and not 0 <= now - kept.fit.fitted_at < self._refit
        if kept.fit is None or (old and self._renewals > 0):
            self._renewals -= old
            try:
                kept.fit = self._forecaster.fit(past, now)
            except TooShort:
                return demand.Outcome(rule.rule, None, "history")
            if self._keeps:
                self._save(kept.fit, kept.file)
        keys = self._keys(kept, now) if rule.abuse else demand.Keys()
        found = demand.judge(rule, self._config, self._forecaster, kept.fit, past, keys)
        limit = (found.advised or {}).get("limit")
        if isinstance(limit, dict) and limit["requests"] > rule.limit.requests and self._is_pressed(now):
            return replace(found, advised=None, why="pressure")
        return found

    def _is_pressed(self, now: float) -> bool:
        """Whether the pressure on the service is high (Unix seconds). It is asked for once in a turn. If it is not known it is not high."""
        pressure = self._config.pressure
        if pressure is None:
            return False
        if self._pressed is None:
            try:
                value = self._source.value(pressure.query, now)
                if value is None:
                    raise SourceError(f"{pressure.query}: has no series, or no finite value")
                self._pressed = value >= pressure.high
            except SourceError as error:
                self._miss(f"the pressure is not known, and has no effect: {error}")
                self._pressed = False
        return self._pressed

    def _keys(self, kept: _Kept, now: float) -> demand.Keys:
        """Reads how the demand spreads over the keys: now, and as often as models are fitted what is usual, up to a horizon ago."""
        renew = not 0 <= now - kept.usual < self._refit
        before = now - self._config.horizon.total_seconds()
        read = asdict(kept.keys)
        for name in read:
            if renew or name.startswith("now"):
                read[name] = self._source.value(getattr(kept.queries, name), now if name.startswith("now") else before)
        kept.keys, kept.usual = demand.Keys(**read), now if renew else kept.usual
        return kept.keys

    def _save(self, fit: Fit, file: Path) -> None:
        try:
            self._forecaster.save(fit, file)
        except OSError as error:
            log.warning("%s: the model is not kept: %s", file, error)

    def _publish(self, now: float, outcomes: list[demand.Outcome]) -> advice.Published:
        config = self._config
        advised = [outcome for outcome in outcomes if outcome.advised]
        skills = [outcome.skill_vs_last for outcome in advised if outcome.skill_vs_last is not None]
        self._serial = max(int(now * 1000), self._serial + 1)
        expires = now + config.expires.total_seconds()
        document: dict[str, Any] = {
            "version": 1,
            "serial": self._serial,
            "config": self.digest,
            "issued_at": advice.rfc3339(now),
            "effective_at": advice.rfc3339(now),
            "expires_at": advice.rfc3339(expires),
            "model": {
                "name": config.model,
                "horizon_seconds": math.ceil(config.horizon.total_seconds()),
                "skill_vs_last": round(min(skills), 4) if skills else None,
            },
            "rules": [outcome.advised for outcome in advised],
            "abstained": [{"rule": outcome.rule, "reason": outcome.why} for outcome in outcomes if not outcome.advised],
        }
        published = advice.publish(document, expires, self._key)
        if self._keeps:
            try:
                new = self._folder / "serial.new"
                new.write_text(str(self._serial))
                new.replace(self._folder / "serial")
            except OSError as error:
                log.warning("the serial is not kept: %s", error)
        return published
