"""Checks of the intervals by something else than Student's t: the bootstrap."""

import math

import numpy as np
from inference import Comparison, Estimate, estimate, judge
from scipy import stats

ENOUGH = 10  # pairs; of fewer the bootstrap says nothing
TOLERANCE = 0.3  # of the half width of the interval by t, within which both ends of the other one agree. At twenty pairs a tenth is the bootstrap's own
TIMES = 4000


def bootstrap(values: np.ndarray, confidence: float = 0.95, trim: float = 0) -> Estimate:
    """The interval of the mean of differences, of shape (n,), by Efron's bootstrap with correction of bias and skew (BCa). It is the same each time. The mean is
    the middle of the interval."""
    if np.ptp(values) == 0:
        return Estimate(float(values[0]), 0, len(values))
    found = stats.bootstrap(
        (values,), lambda v, axis: stats.trim_mean(v, trim, axis=axis), confidence_level=confidence, n_resamples=TIMES, batch=500, rng=np.random.default_rng(38)
    ).confidence_interval
    return Estimate(float(found.low + found.high) / 2, float(found.high - found.low) / 2, len(values))


def agrees(by_t: Estimate, other: Estimate) -> bool:
    """Whether both ends agree within the tolerance."""
    return max(abs(by_t.low - other.low), abs(by_t.high - other.high)) <= TOLERANCE * by_t.half


def checked(hypothesis: dict, of: list[Comparison]) -> list[tuple[Comparison, Estimate, Estimate, bool]]:
    """Of each comparison with enough pairs: the interval by t, the one by the bootstrap, and whether both come to the same outcome."""
    found = []
    for c in of:
        values = c.values.dropna().to_numpy(float)
        if len(values) < ENOUGH:
            continue
        trim = hypothesis.get("trim", 0)
        by_t, other = estimate(c.values, c.confidence, trim), bootstrap(values, c.confidence, trim)
        outcomes = [judge(hypothesis["test"], e, hypothesis.get("margin", 0), wider=hypothesis.get("equivalent", ())) for e in (by_t, other)]
        found.append((c, by_t, other, str(outcomes[0]) == str(outcomes[1])))
    return found


def standstills(on: np.ndarray, off: np.ndarray, far: float = 10.0) -> tuple[int, int, float]:
    """In how many blocks the window with the advisor was slower by more than so many milliseconds than the other, in how many it was the other way round, and
    the chance of counts so unequal if both are as likely. on and off have the means of the windows in ms, by block, of shape (blocks,)."""
    slower, faster = int((on - off > far).sum()), int((off - on > far).sum())
    return slower, faster, float(stats.binomtest(slower, slower + faster).pvalue) if slower + faster else math.nan
