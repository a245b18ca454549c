"""Means with intervals, paired differences, and the tests of the hypotheses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """A mean of n values, and half the width of its interval; NaN if there are fewer than two."""

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def estimate(values: pd.Series, confidence: float = 0.95, trim: float = 0) -> Estimate:
    """The mean of a column of floats, with its interval by Student's t. With trim, it is the mean without that part of the values at each end, and its
    interval is that of Tukey and McLaughlin ("Less vulnerable confidence and significance procedures for location", Sankhyā, 1963)."""
    ordered = np.sort(values.dropna().to_numpy(float))
    n = len(ordered)
    if n == 0:
        return Estimate(math.nan, math.nan, 0)
    cut = int(trim * n)
    kept = n - 2 * cut
    mean = float(ordered[cut : n - cut].mean())
    if kept < 2:
        return Estimate(mean, math.nan, n)
    error = float(winsorized(ordered, cut).std(ddof=1)) / ((1 - 2 * trim) * math.sqrt(n))
    return Estimate(mean, float(stats.t.ppf(0.5 + confidence / 2, kept - 1)) * error, n)


def winsorized(ordered: np.ndarray, cut: int) -> np.ndarray:
    """Sorted floats of shape (n,), in which the cut smallest and the cut largest are replaced by their nearest neighbours."""
    return np.clip(ordered, ordered[cut], ordered[len(ordered) - 1 - cut])


def differences(runs: pd.DataFrame, measure: str, left: dict, right: dict) -> pd.Series:
    """left − right of a measure, by seed, of runs with the same seed: a float for each, NaN where a run does not count. left and right choose runs by
    the values of columns."""
    sides = [runs[(runs[list(side)] == pd.Series(side)).all(axis=1)].set_index("seed")[measure] for side in (left, right)]
    both = sides[0].index.intersection(sides[1].index)
    return sides[0][both] - sides[1][both]


def paired(runs: pd.DataFrame, measure: str, left: dict, right: dict, confidence: float = 0.95) -> Estimate:
    """The mean of differences."""
    return estimate(differences(runs, measure, left, right), confidence)


FEWEST = 3  # pairs; fewer decide nothing


@dataclass(frozen=True)
class Comparison:
    """A combination of a hypothesis: what is compared, and where. values has a difference for each pair (float, by seed); of one that the protocol has
    open, those of the protocol's pairs alone. It is complete when the protocol's pairs have all been played."""

    tier: str
    what: str
    situation: str
    algorithm: str
    values: pd.Series
    complete: bool
    confidence: float
    entry: dict | None  # of the protocol, if it is open


@dataclass(frozen=True)
class Finding:
    """What a comparison has come to: the difference, and "confirmed", "refuted", "equivalent" (within a margin of the protocol), or "undecided"."""

    tier: str
    what: str
    situation: str
    algorithm: str
    difference: Estimate
    outcome: str
    within: float = math.nan  # the margin, if it is equivalent


def judge(test: str, d: Estimate, margin: float, strict: Estimate | None = None, wider: Sequence[float] = ()) -> tuple[str, float]:
    """What an interval says under a test of hypotheses.toml, and the margin within which it is equivalent (else NaN). strict is the wider interval that a
    refutation asks for; None: the same. wider are the margins of the protocol for "equivalent"."""
    strict = strict or d
    if d.n < FEWEST:
        return "undecided", math.nan
    within, outside = -margin < d.low and d.high < margin, d.low > margin or d.high < -margin
    confirmed, refuted = {
        "not_inferior": (d.low > -margin, strict.high < -margin),
        "superior": (d.low > 0, strict.high < 0),
        "inferior": (d.high < 0, strict.low > 0),
        "equivalent": (within, strict.low > margin or strict.high < -margin),
        "differ": (outside, within),
    }[test]
    if confirmed or refuted:
        return "confirmed" if confirmed else "refuted", math.nan
    for x in sorted(wider):
        if -x < d.low and d.high < x:
            return "equivalent", x
    return "undecided", math.nan


def comparisons(hypothesis: dict, tiers: dict[str, pd.DataFrame], plan: Sequence[dict] = ()) -> list[Comparison]:
    """The combinations of a hypothesis that were run, or are open. plan are the entries "open" of hypotheses.toml."""
    found = []
    test, measure = hypothesis["test"], hypothesis["measure"]
    for look in hypothesis["look"]:
        runs = tiers[look["tier"]]
        situations = chosen(look["situations"], runs["situation"])
        algorithms = chosen(look["algorithms"], runs["algorithm"])
        if test == "differ":
            names = list(combinations(algorithms, 2))
            sides = [tuple({"policy": look["policy"], "algorithm": a} for a in two) for two in names]
            what = [(f"{a} − {b}", "") for a, b in names]
            confidence = 1 - 0.05 / len(names) if names else 0.95
        else:
            sides = [tuple({"policy": look[side], "algorithm": a} for side in ("left", "right")) for a in algorithms]
            what = [(f"{look['left']} − {look['right']}", a) for a in algorithms]
            confidence = 0.95
        for situation in situations:
            for (left, right), (name, algorithm) in zip(sides, what, strict=True):
                values = differences(runs, measure, left | {"situation": situation}, right | {"situation": situation})
                entry = opened(plan, look["tier"], situation, {left["policy"], right["policy"]}, {left["algorithm"], right["algorithm"]})
                complete = True
                if entry is not None:
                    played = values[(values.index >= entry["first"]) & (values.index < entry["first"] + entry["pairs"])]
                    complete = len(played) == entry["pairs"]
                    values = played if len(played) else values  # before the protocol's first run: the pilot's
                if values.notna().any() or entry is not None:
                    found.append(Comparison(look["tier"], name, situation, algorithm, values, complete, confidence, entry))
    return found


def opened(plan: Sequence[dict], tier: str, situation: str, policies: set[str], algorithms: set[str]) -> dict | None:
    """The protocol's entry for a combination, if it has one."""
    for entry in plan:
        if entry["tier"] == tier and entry["situation"] == situation and set(entry["policies"]) == policies and algorithms <= set(entry["algorithms"]):
            return entry
    return None


def decide(hypothesis: dict, tiers: dict[str, pd.DataFrame], plan: Sequence[dict] = ()) -> list[Finding]:
    """The findings of a hypothesis in all its combinations that were run. One that the protocol has open is undecided until it is complete."""
    return conclude(hypothesis, comparisons(hypothesis, tiers, plan))


def conclude(hypothesis: dict, of: list[Comparison]) -> list[Finding]:
    """What comparisons come to under the hypothesis's test."""
    margin, trim = hypothesis.get("margin", 0), hypothesis.get("trim", 0)
    found = []
    for c in of:
        d = estimate(c.values, c.confidence, trim)
        strict = estimate(c.values, 1 - 0.05 / sum(other.tier == c.tier for other in of), trim)
        outcome, within = judge(hypothesis["test"], d, margin, strict, hypothesis.get("equivalent", ())) if c.complete else ("undecided", math.nan)
        found.append(Finding(c.tier, c.what, c.situation, c.algorithm, d, outcome, within))
    return found


def chosen(names: list[str] | str, column: pd.Series) -> list[str]:
    """The names that a look has; "all" are those of the runs, in their order."""
    if names == "all":
        return [name for name in column.drop_duplicates() if name != ""]
    return list(names)


def verdict(test: str, findings: list[Finding]) -> str:
    """What findings come to together: "differ" asks for one combination, the other tests for all."""
    says = [f.outcome for f in findings]
    if not says:
        return "not run"
    if test == "differ":
        return "confirmed" if "confirmed" in says else "refuted" if set(says) == {"refuted"} else "undecided"
    for outcome in ("refuted", "undecided", "equivalent"):
        if outcome in says:
            return outcome
    return "confirmed"
