"""Means with intervals, paired differences, and the tests of the hypotheses."""

import math
from dataclasses import dataclass
from itertools import combinations

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


def estimate(values: pd.Series, confidence: float = 0.95) -> Estimate:
    """The mean with its interval by Student's t."""
    values = values.dropna()
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, 0)
    mean = float(values.mean())
    if n < 2:
        return Estimate(mean, math.nan, n)
    return Estimate(mean, float(stats.t.ppf(0.5 + confidence / 2, n - 1) * values.std(ddof=1) / math.sqrt(n)), n)


def paired(runs: pd.DataFrame, measure: str, left: dict, right: dict, confidence: float = 0.95) -> Estimate:
    """The mean difference of a measure, left − right, of runs with the same seed. left and right choose runs by the values of columns."""
    sides = [runs[(runs[list(side)] == pd.Series(side)).all(axis=1)].set_index("seed")[measure] for side in (left, right)]
    return estimate((sides[0] - sides[1]).dropna(), confidence)


FEWEST = 3  # pairs; fewer decide nothing


@dataclass(frozen=True)
class Finding:
    """What one combination has come to: the difference, and whether it supports the hypothesis, refutes it (False), or neither (None)."""

    tier: str
    what: str
    situation: str
    algorithm: str
    difference: Estimate
    supports: bool | None


def judge(test: str, d: Estimate, margin: float) -> bool | None:
    """What an interval says under a test of hypotheses.toml."""
    if d.n < FEWEST:
        return None
    if test == "not_inferior":
        return True if d.low > -margin else False if d.high < -margin else None
    if test == "superior":
        return True if d.low > 0 else False if d.high < 0 else None
    if test == "inferior":
        return True if d.high < 0 else False if d.low > 0 else None
    within = -margin < d.low and d.high < margin
    outside = d.low > margin or d.high < -margin
    if test == "equivalent":
        return True if within else False if outside else None
    if test == "differ":
        return True if outside else False if within else None
    raise ValueError(f"there is no test {test!r}")


def decide(hypothesis: dict, tiers: dict[str, pd.DataFrame]) -> list[Finding]:
    """The findings of a hypothesis in all its combinations that were run."""
    found = []
    margin, test, measure = hypothesis.get("margin", 0), hypothesis["test"], hypothesis["measure"]
    for look in hypothesis["look"]:
        runs = tiers[look["tier"]]
        situations = chosen(look["situations"], runs["situation"])
        algorithms = chosen(look["algorithms"], runs["algorithm"])
        if test == "differ":
            pairs = list(combinations(algorithms, 2))
            for situation in situations:
                for a, b in pairs:
                    sides = [{"situation": situation, "policy": look["policy"], "algorithm": name} for name in (a, b)]
                    d = paired(runs, measure, *sides, confidence=1 - 0.05 / len(pairs))
                    if d.n:
                        found.append(Finding(look["tier"], f"{a} − {b}", situation, "", d, judge(test, d, margin)))
            continue
        for situation in situations:
            for algorithm in algorithms:
                sides = [{"situation": situation, "policy": look[side], "algorithm": algorithm} for side in ("left", "right")]
                d = paired(runs, measure, *sides)
                if d.n:
                    found.append(Finding(look["tier"], f"{look['left']} − {look['right']}", situation, algorithm, d, judge(test, d, margin)))
    return found


def chosen(names: list[str] | str, column: pd.Series) -> list[str]:
    """The names that a look has; "all" are those of the runs, in their order."""
    if names == "all":
        return [name for name in column.drop_duplicates() if name != ""]
    return list(names)


def verdict(test: str, findings: list[Finding]) -> str:
    """What findings come to together: "differ" asks for one combination, the other tests for all."""
    says = [f.supports for f in findings]
    if not says:
        return "not run"
    if test == "differ":
        return "supported" if True in says else "refuted" if all(s is False for s in says) else "undecided"
    return "refuted" if False in says else "supported" if all(says) else "undecided"
