"""How many pairs the open combinations need: python power.py prints the table that the protocol in hypotheses.toml is planned by.

The spread of a difference is taken from the pilot. A standard deviation of a few pairs is itself uncertain, so the plan takes the upper end of its
one-sided 80 % interval, as Browne advises ("On the use of a pilot sample for sample size determination", 1995)."""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import tables
from data import read
from inference import Comparison, comparisons, winsorized
from scipy import stats

POWER = 0.9
ALPHA = 0.05  # of both sides, as the intervals of 95 % have it
CONFIDENCE = 0.8  # of the standard deviation
SHORTER = 60 / 30  # counted seconds of the cells of the pilot ÷ those of a window with the forecast on or off, whose spread is taken from them


@dataclass(frozen=True)
class Row:
    """What one combination needs. Standard deviations are of a difference, in the measure's unit."""

    hypothesis: str
    comparison: Comparison
    sd: float
    upper: float  # the end of its interval
    shift: float  # that is to be found: a difference, or the distance of none from a margin
    needed: int  # pairs for that
    margin: float  # the widest for "equivalent"; NaN: the test has none
    needed_for_margin: int  # 0: the test has none
    power: float  # of the protocol's pairs to find the shift
    power_for_margin: float

    @property
    def pairs(self) -> int:
        """That the protocol has."""
        return self.comparison.entry["pairs"]


def upper_sd(sd: float, freedom: int, confidence: float = CONFIDENCE) -> float:
    """The end of the one-sided interval of a normal variable's standard deviation."""
    return sd * math.sqrt(freedom / stats.chi2.ppf(1 - confidence, freedom))


def power_to_find(n: int, shift: float, sd: float, alpha: float = ALPHA) -> float:
    """The chance that the interval (1 − alpha) of n differences around shift lies above 0."""
    return float(stats.nct.sf(stats.t.ppf(1 - alpha / 2, n - 1), n - 1, shift * math.sqrt(n) / sd))


def power_for_equivalence(n: int, margin: float, sd: float, alpha: float = ALPHA) -> float:
    """A lower bound of the chance that the interval of n differences around 0 lies within ±margin: each side fails at most as often as one test."""
    return max(0.0, 1 - 2 * (1 - power_to_find(n, margin, sd, alpha)))


def fewest(power: Callable[[int], float], wanted: float = POWER, least: int = 3) -> int:
    """The smallest n, from least on, with that power, which grows with n."""
    low, high = least - 1, least
    while power(high) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= wanted else (middle, high)
    return high


def pooled(values: list[np.ndarray], trim: float) -> tuple[float, int]:
    """The standard deviation that belongs to a mean of differences, and its degrees of freedom. values has an array of shape (pairs,) of floats for each
    combination. With trim it is of all values together, and such that ÷ √n is the standard error of their trimmed mean."""
    if not trim:
        freedom = sum(len(v) - 1 for v in values)
        return math.sqrt(sum(float(((v - v.mean()) ** 2).sum()) for v in values) / freedom), freedom
    every = np.sort(np.concatenate(values))
    cut = int(trim * len(every))
    return float(winsorized(every, cut).std(ddof=1)) / (1 - 2 * trim), len(every) - 2 * cut - 1


def rows(hypotheses: list[dict], plan: list[dict], tiers: dict[str, pd.DataFrame]) -> list[Row]:
    """A row for each combination that the protocol has open, in the order of the hypotheses."""
    first = {entry["tier"]: entry["first"] for entry in plan}
    pilot = {tier: runs[runs["seed"] < first.get(tier, math.inf)] for tier, runs in tiers.items()}
    found = []
    for hypothesis in hypotheses:
        for c in comparisons(hypothesis, pilot, plan):
            if c.entry is None:
                continue
            shift = shift_of(hypothesis, c, pilot)
            if shift <= 0:
                continue  # no difference is expected
            looks = c.entry.get("spread")
            of = comparisons(hypothesis | {"look": looks}, pilot) if looks else [c]
            spread = [d.values.dropna().to_numpy(float) for d in of if d.values.count() >= 2]
            if not spread:
                continue  # not run yet
            sd, freedom = pooled(spread, hypothesis.get("trim", 0))
            if sd == 0:
                continue  # runs that are all alike plan nothing
            if c.tier == "windows":
                sd *= math.sqrt(SHORTER)
            found.append(row(hypothesis, c, sd, upper_sd(sd, freedom), shift))
    return found


def shift_of(hypothesis: dict, c: Comparison, pilot: dict[str, pd.DataFrame]) -> float:
    """What is to be found. Of "differ" it is by how much more than the margin tier 2 has found."""
    if hypothesis["test"] != "differ":
        return float(hypothesis.get("finds", hypothesis.get("margin")))
    virtual = [abs(float(d.values.mean())) for d in comparisons(hypothesis, pilot) if (d.tier, d.what) == ("virtual", c.what)]
    return virtual[0] - hypothesis["margin"] if virtual else 0


def row(hypothesis: dict, c: Comparison, sd: float, upper: float, shift: float) -> Row:
    find = power_for_equivalence if hypothesis["test"] == "equivalent" else power_to_find
    margin = max(hypothesis.get("equivalent", [math.nan]))

    def power(n: int) -> float:
        return find(n, shift, upper, 1 - c.confidence)

    def power_for_margin(n: int) -> float:
        return power_for_equivalence(n, margin, upper)

    has = not math.isnan(margin)
    pairs = c.entry["pairs"]
    return Row(hypothesis["name"], c, sd, upper, shift, fewest(power), margin, fewest(power_for_margin) if has else 0, power(pairs), power_for_margin(pairs) if has else math.nan)


def main() -> None:
    here = Path(__file__).parent
    of = tomllib.loads((here.parent / "hypotheses.toml").read_text())
    print(tables.power(rows(of["hypothesis"], of["open"], read(here.parent / "data").tiers)))


if __name__ == "__main__":
    main()
