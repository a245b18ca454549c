"""Says what to advise for one rule, or why nothing. Demand is in requests in the limit's period, unless a name says otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from weir_advisor.config import MOST_REQUESTS, Config, Rule
from weir_advisor.forecast import Band, Fit, Forecaster

TOLD = 10  # the seconds in which Weir counts the demand of a key
CHANGE = 0.1  # the least part of the configured limit by which advice differs from it
MOST_GAPS = 0.1
MORE_KEYS = 1.25  # times the usual number of active keys make a crowd
ABOVE = 3  # times the demand that one key in 1,000 exceeds is abuse
ABOVE_FOR = "5m"


@dataclass(frozen=True)
class Queries:
    """What is asked of Prometheus for a rule: the series ``demand``, in requests in the limit's period, and values of its keys, by 10 seconds."""

    demand: str
    now_active: str
    usual_active: str
    now_share: str
    usual_share: str
    now_tail: str
    usual_tail: str
    usual_most: str

    @classmethod
    def of(cls, rule: Rule, config: Config) -> Queries:
        """Returns the queries of a rule. The usual values are over the history: quantile 0.99 of active keys and of the share of
        the ten keys with the most demand, and the demand in 10 s that a key in 1,000 (tail), or one in 10 (most), exceeds."""
        labels = ",".join(part for part in (f'rule="{rule.rule}"', config.prometheus.selector) if part)
        history = f"{int(config.history.total_seconds())}s"
        step = max(config.step.total_seconds(), config.history.total_seconds() / 5000)

        recently = f"{max(int(config.step.total_seconds()), 300)}s"

        def keys(quantile: float, over: str) -> str:
            return f"histogram_quantile({quantile}, sum by (le) (rate(weir_key_demand_bucket{{{labels}}}[{over}])))"

        def usually(query: str) -> str:
            return f"quantile_over_time(0.99, ({query})[{history}:{int(step)}s])"

        active = f"sum(weir_active_keys{{{labels}}})"
        share = f'max(weir_top_keys_share{{{labels},keys="10"}})'
        total = f"sum(rate(weir_requests_total{{{labels}}}[{max(int(config.step.total_seconds()), 60)}s]))"
        demand = f"({total if rule.asks == 'total' else rule.query}) * {rule.period:.12g}"
        if rule.asks == "key":
            demand = f"{keys(rule.quantile, recently)} * {rule.period / TOLD:.12g}"
        return cls(
            demand=demand,
            now_active=active,
            usual_active=usually(active),
            now_share=share,
            usual_share=usually(share),
            now_tail=keys(0.999, recently),
            usual_tail=keys(0.999, history),
            usual_most=keys(0.9, history),
        )


@dataclass(frozen=True)
class Keys:
    """How a rule's demand spreads over its keys, now and usually: see Queries. None is not known."""

    now_active: float | None = None
    usual_active: float | None = None
    now_share: float | None = None
    usual_share: float | None = None
    now_tail: float | None = None
    usual_tail: float | None = None
    usual_most: float | None = None

    def crowd(self) -> bool:
        """Whether more keys than usual ask, and none for much more than usual."""
        if not self.now_active or not self.usual_active:
            return False
        return self.now_active > MORE_KEYS * self.usual_active and not self.abuse()

    def abuse(self) -> bool:
        """Whether few keys ask for much more than keys usually do."""
        if not self.now_tail or not self.usual_tail or self.now_share is None or self.usual_share is None:
            return False
        return self.now_tail > ABOVE * self.usual_tail and self.now_share > self.usual_share


@dataclass(frozen=True)
class Outcome:
    """What a turn found for a rule. ``advised`` is the rule's entry in the document, or None, and ``why`` then says why: source,
    history, gaps, outdated, skill, unneeded or pressure. ``at`` and ``value`` are the last known demand (Unix seconds)."""

    rule: str
    advised: dict[str, object] | None
    why: str
    at: float | None = None
    value: float | None = None
    band: Band | None = None
    skill_vs_last: float | None = None
    skill_vs_mean: float | None = None


def lacking(past: pd.Series[float], config: Config) -> str:
    """Returns why a series is of no use, or "" if it is of use: its gaps are those after its first known value."""
    first, last = past.first_valid_index(), past.last_valid_index()
    since = past.loc[first:]
    if first is None or last is None or len(since) * config.step < 2 * config.season:
        return "history"
    if float(since.isna().mean()) > MOST_GAPS:
        return "gaps"
    return "outdated" if past.index[-1] - last > config.horizon else ""


def judge(rule: Rule, config: Config, forecaster: Forecaster, fit: Fit, past: pd.Series[float], keys: Keys) -> Outcome:
    """Decides what to advise for a rule after a series that lacks nothing."""
    known = past.dropna()
    at, value = pd.Timestamp(known.index[-1]), float(known.iloc[-1])
    band = max((b for _, b in forecaster.ahead(fit, past)), key=lambda b: b.upper)
    unusual = value > forecaster.expected(fit, at).upper

    def found(advised: dict[str, object] | None, why: str = "") -> Outcome:
        return Outcome(rule.rule, advised, why, at.timestamp(), value, band, fit.skill_vs_last, fit.skill_vs_mean)

    # A quantile of all keys does not show what a few do: there the keys alone tell.
    if rule.abuse and (unusual or rule.asks == "key") and keys.abuse():
        return found({"rule": rule.rule, "reason": "abuse", "above": above(keys)})
    if fit.skill is None or fit.skill < config.minimum_skill:
        return found(None, "skill")
    configured = rule.limit.requests
    wanted = min(max(math.ceil(min(rule.headroom * band.upper, MOST_REQUESTS)), rule.least.requests), rule.ceiling.requests)
    if wanted < configured * (1 + CHANGE) and not (rule.lower and wanted <= configured * (1 - CHANGE)):
        return found(None, "unneeded")
    reason = "schedule" if float(known.quantile(0.99)) >= band.mean else "growth"
    if unusual and keys.crowd():
        reason = "crowd"
    forecast = {"mean": _short(band.mean), "lower": _short(band.lower), "upper": _short(band.upper), "quantile": rule.quantile}
    return found({"rule": rule.rule, "limit": {"requests": wanted}, "reason": reason, "forecast": forecast})


def above(keys: Keys) -> dict[str, object]:
    """Returns the threshold for abuse: beyond 3 times what one key in 1,000 exceeds, a key gets what nine in ten are content with."""
    most = min(max(math.ceil(keys.usual_most or 1), 1), MOST_REQUESTS)
    return {"requests_per_second": _short(ABOVE * (keys.usual_tail or 0) / TOLD), "limit": f"{most}/{TOLD}s", "for": ABOVE_FOR}


def _short(x: float) -> float:
    """Returns a number with six digits, at most 10^12."""
    return float(f"{min(x, 1e12):.6g}")
