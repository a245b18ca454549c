"""Early signs: which of the signals that are measured precede a burst, or the harm that it does, by how much, and with how many false alarms.

Two kinds of data have an answer. In the cells of tier 1 there is a row for each second, and the event is the beginning of a spell in which legitimate
clients are answered badly. In the log of the World Cup there is a number for each five minutes, and the event is a sudden growth of the demand."""

import gzip
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from data import OUTCOMES, Data
from inference import Estimate
from matplotlib.figure import Figure
from scipy import stats
from tables import NOT_RUN, number, table

TIMES = 1000  # resamples of the bootstrap
CONFIDENCE = 0.95

# Tier 1.
WELL = 0.9  # of the attempts of legitimate clients are answered where nothing is bad; as "recovery" has it
LEADS = (1, 2, 5, 10)  # seconds before the event
AHEAD = 2  # the one of them that signs are judged by
LONGEST = LEADS[-1]  # signs are looked for so many seconds before the event. What is less far from a spell is not quiet
CALM, SETTLED = 15, 10  # seconds before the event of a cell: its beginning, and from when on signs are looked for, as they need a past
QUIET = "steady"  # the scenario of quiet operation
RARE = 1 / 10  # false alarms in a minute of quiet operation
STEPS = ("bursts", "crowd", "abuse", "quiet bots", "redis off")  # scenarios in which load comes at once, in second 0; "bursts" also on each day of the history that advisors learn from
SLOPES = ("slow", "world cup")  # in which it comes by and by
FORMS = ("level", "rise")
OUTCOME = "badly answered"  # the signal that is a part of what is to be foreseen: the others are to beat it
SIGNALS = {"static": ("sent", "under way", "time in B", OUTCOME), "guard": ("sent", "under way", "time in B", "guard's limit", OUTCOME)} | {
    arm: ("demand", "forecast", "forecast's upper end", "limit of a client") for arm in ("guard+go", "guard+prophet")
}  # by arm: of an arm with an advisor only what the advisor adds, since the rest is as with the guard alone
FALLS = ("guard's limit",)  # signals of which less is the sign

# The log of the World Cup.
LOG = Path(__file__).parents[2] / "testdata" / "worldcup" / "requests-in-5-minutes.txt.gz"
STEP, HOUR, DAY = 5, 12, 288  # minutes, and numbers of steps
MIDNIGHT = 30  # the first step of a day in the log, which begins at 21:30
GROWTH = 1.5  # times the mean of the hour before: a burst
HORIZONS = (3, 6, 12)  # steps ahead: 15, 30 and 60 minutes
HISTORY = 7  # days that signals look back
A_DAY = 1.0  # false alarms, in the first half of the log

Groups = dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]  # by stratum and cluster: values of a signal before events, and in quiet operation


def roc(before: np.ndarray, quiet: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ROC curve over all thresholds: the part of the quiet values that are above each, and the part of those before events, from (0, 0) to (1, 1). Only the
    corners of the curve are there. Both results have the shape (corners,)."""
    thresholds = np.unique(np.concatenate([before, quiet]))[::-1]
    false = np.concatenate([[0], np.searchsorted(np.sort(-quiet), -thresholds, side="right") / len(quiet)])
    hits = np.concatenate([[0], np.searchsorted(np.sort(-before), -thresholds, side="right") / len(before)])
    ahead, back = (false[1:-1] - false[:-2]) * (hits[2:] - hits[1:-1]), (false[2:] - false[1:-1]) * (hits[1:-1] - hits[:-2])
    corner = np.concatenate([[True], ~np.isclose(ahead, back, rtol=0, atol=1e-12), [True]])
    return false[corner], hits[corner]


@cache
def resamples(sizes: tuple[int, ...]) -> np.ndarray:
    """How often each cluster is drawn in each resample, of shape (TIMES, clusters). Clusters are drawn within their stratum; sizes has the clusters of each.
    They are the same each time."""
    draw = np.random.default_rng(38)
    return np.hstack([draw.multinomial(n, np.full(n, 1 / n), TIMES) for n in sizes]).astype(float)


def area(groups: Groups) -> Estimate:
    """The area under the ROC curve: the chance that a value before an event is above one of quiet operation (equal ones count half). Its interval is by the
    bootstrap, which resamples clusters within their strata, since values of a cluster are of the same requests. With few clusters the bootstrap is too narrow.
    So its standard error is taken times √(n / (n − 1)), and with Student's t of n − 1 degrees of freedom, where n are the clusters with events (Hesterberg, "What
    teachers should know about the bootstrap", 2015). n is also that of the result. A signal that never changes has no area."""
    keys = sorted(groups)
    before, quiet = (np.concatenate([groups[k][i] for k in keys] or [np.empty(0)]) for i in (0, 1))
    n = sum(len(groups[k][0]) > 0 for k in keys)
    if len(before) == 0 or len(quiet) == 0 or np.ptp(np.concatenate([before, quiet])) == 0:
        return Estimate(math.nan, math.nan, n)
    counts = np.array([[len(part) for part in groups[k]] for k in keys], float)
    above = np.empty((len(before), len(keys)))  # of the quiet values of a cluster, how many are below each value before an event
    for j, k in enumerate(keys):
        of = np.sort(groups[k][1])
        above[:, j] = (np.searchsorted(of, before, side="left") + np.searchsorted(of, before, side="right")) / 2
    pairs = np.diff(np.concatenate([np.zeros((1, len(keys))), above.cumsum(axis=0)])[np.concatenate([[0], counts[:, 0].cumsum()]).astype(int)], axis=0)
    strata = [k[0] for k in keys]
    w = resamples(tuple(strata.count(s) for s in dict.fromkeys(strata)))
    of_all = (w @ counts[:, 0]) * (w @ counts[:, 1])
    drawn = ((w @ pairs) * w).sum(axis=1)[of_all > 0] / of_all[of_all > 0]
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * drawn.std() * math.sqrt(n / (n - 1)) if n > 1 else math.nan
    return Estimate(float(pairs.sum() / counts[:, 0].sum() / counts[:, 1].sum()), float(half), n)


def alarms(values: np.ndarray, threshold: float, apart: int) -> int:
    """How many alarms a series rings: values above the threshold, of which those that are at most so many steps apart are one alarm. NaN rings none."""
    at = np.flatnonzero(values > threshold)
    return int(len(at) > 0) + int((np.diff(at) > apart).sum())


def threshold_for(quiet: Iterable[np.ndarray], most: float, apart: int) -> float:
    """The lowest threshold at which, and above which, all quiet series together ring so many alarms at most. Without values it is infinite."""
    series = list(quiet)
    found = math.inf
    values = np.concatenate(series) if series else np.empty(0)
    for candidate in np.unique(values[~np.isnan(values)])[::-1]:
        if sum(alarms(s, candidate, apart) for s in series) > most:
            break
        found = float(candidate)
    return found


def lead_of(values: np.ndarray, event: int, threshold: float, longest: int) -> int:
    """By how many steps the first value above the threshold precedes the event, if it is at most so many steps before it; 0 if there is none."""
    first = max(0, event - longest)
    at = np.flatnonzero(values[first:event] > threshold)
    return event - first - int(at[0]) if len(at) else 0


# --- Tier 1.


@dataclass
class Cell:
    scenario: str
    arm: str
    pair: int
    event: int | None  # the index at which the first spell begins
    quiet: np.ndarray  # of shape (seconds,): whether a second before the first event is not bad, and farther than LONGEST from it. Index 0 is second −CALM
    signals: dict[tuple[str, str], np.ndarray]  # by signal and form: values as they are known at the beginning of each second, of shape (seconds,)


def spells(sent: np.ndarray, answered: np.ndarray) -> np.ndarray:
    """Whether each second is in a spell in which clients are answered badly. A spell begins with a second in which less than WELL of what was sent is answered,
    if that also holds for it and the next two together. It ends where three seconds in a row are good. All arrays have the shape (seconds,)."""
    good = answered >= WELL * sent
    ahead = [np.concatenate([v, np.full(2, math.nan)]) for v in (sent, answered)]
    sent3, answered3 = (v[:-2] + v[1:-1] + v[2:] for v in ahead)
    bad, inside = np.zeros(len(sent), bool), False
    for i in range(len(sent)):
        inside = not good[i : i + 3].all() if inside else not good[i] and answered3[i] < WELL * sent3[i]
        bad[i] = inside
    return bad


def known(of: pd.DataFrame, seconds: np.ndarray) -> dict[str, np.ndarray]:
    """What is known at the beginning of each of the seconds, by signal; more is always the sign. What was sent in a second is known at its end, and what became
    of it a second later, as clients are patient for a second. The rest is read at the beginning."""
    all_ = of.reindex(seconds)
    counts = {o: (all_[f"own_{o}"] + all_[f"others_{o}"]).fillna(0).to_numpy(float) for o in OUTCOMES}
    sent = sum(counts.values())

    def seen(name: str) -> np.ndarray:
        return all_[name].to_numpy(float) if name in all_ else np.full(len(seconds), math.nan)

    # At the beginning of a cell nothing has been sent yet.
    under_way, reached = np.where(seconds == seconds[0], math.nan, seen("under_way")), earlier(sent - counts["limited"] - counts["turned_away"], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = {
            "sent": earlier(sent, 1),
            "under way": under_way,
            "time in B": mean_of(under_way, 3) / mean_of(reached, 3),  # by Little's law, in seconds
            "guard's limit": seen("guard_limit"),
            "demand": seen("demand"),
            "forecast": seen("forecast_mean"),
            "forecast's upper end": seen("forecast_upper"),
            "limit of a client": seen("limit_of_client"),
            OUTCOME: earlier(1 - counts["answered"] / sent, 2),
        }
    return {name: np.where(np.isfinite(v), v, math.nan) * (-1 if name in FALLS else 1) for name, v in found.items()}


def earlier(values: np.ndarray, steps: int) -> np.ndarray:
    """The values so many steps before, and NaN where there are none."""
    return np.concatenate([np.full(steps, math.nan), values[:-steps]])


def mean_of(values: np.ndarray, n: int) -> np.ndarray:
    """The mean of each value and those before it, n together."""
    return sum((earlier(values, i) for i in range(1, n)), start=values) / n


def rise(values: np.ndarray) -> np.ndarray:
    """The mean of the last two values − that of the three before them."""
    return mean_of(values, 2) - earlier(mean_of(values, 3), 2)


def cells_of(data: Data) -> list[Cell]:
    """The cells of the arms in SIGNALS. A level counts from the usual one: its median over the calm of all cells of the scenario and arm, or over all of
    cells in which nothing happens. Scenarios are at different times of a day, and differ in demand for that reason alone."""
    found, levels = [], {}
    for record in data.records:
        scenario, arm = record["scenario"], record["arm"]
        if arm not in SIGNALS:
            continue
        seconds = np.arange(-CALM, int(record["event"]))
        of = data.seconds[scenario, record["algorithm"], arm, record["pair"]]
        own = of[[f"own_{o}" for o in OUTCOMES]].reindex(seconds).fillna(0)
        bad = np.flatnonzero(spells(own.sum(axis=1).to_numpy(float), own["own_answered"].to_numpy(float)))
        event = int(bad[0]) if len(bad) else None
        at = np.arange(len(seconds))
        quiet = (seconds >= -SETTLED) & (at < (len(seconds) if event is None else event - LONGEST))
        signals = {name: v for name, v in known(of, seconds).items() if name in SIGNALS[arm]}
        usual = levels.setdefault((scenario, arm), {name: [] for name in signals})
        for name, v in signals.items():
            usual[name].append(v[1 : len(v) if scenario == QUIET else CALM])
        found.append(Cell(scenario, arm, record["pair"], event, quiet, {(name, form): v if form == "level" else rise(v) for name, v in signals.items() for form in FORMS}))
    for cell in found:
        for name, values in levels[cell.scenario, cell.arm].items():
            usual = np.concatenate(values)
            usual = usual[~np.isnan(usual)]
            cell.signals[name, "level"] = cell.signals[name, "level"] - (np.median(usual) if len(usual) else 0)
    return found


def groups_of(cells: list[Cell], scenario: str, signal: tuple[str, str], lead: int) -> Groups:
    """The values of a signal so many seconds before the first event of each cell of a scenario, and those of quiet operation in these cells and in those of
    QUIET. A cluster is a pair: its cells have the same requests."""
    found: dict[tuple[str, int], tuple[list, list]] = {}
    for c in cells:
        if c.scenario not in (scenario, QUIET) or signal not in c.signals:
            continue
        v = c.signals[signal]
        early, quiet = found.setdefault((c.scenario, c.pair), ([], []))
        quiet.append(v[c.quiet & ~np.isnan(v)])
        if c.scenario == scenario and c.event is not None and c.event - lead >= CALM - SETTLED and not math.isnan(v[c.event - lead]):
            early.append([v[c.event - lead]])
    return {key: tuple(np.concatenate([np.empty(0), *part]) for part in parts) for key, parts in found.items()}


LEAD_COLUMNS = ["scenario", "arm", "signal", "form", "pairs", "events", "after", *(f"auc_{n}" for n in LEADS), *(f"half_{n}" for n in LEADS), "warned", "lead", "alarms", "minutes"]


def leads_of_cells(cells: list[Cell]) -> pd.DataFrame:
    """A row for each scenario with events, arm, signal and form. Its columns are the pairs and events (one a cell at most: its first), after how many seconds they
    come (median, from second 0), and the area under the ROC curve and the half width of its interval for each lead. Then the lowest threshold is taken that has at
    most RARE false alarms in a minute of quiet operation: warned is the part of the events before which it is passed (within LONGEST seconds), lead the median lead
    in seconds (0 where it is not passed), and alarms are the false ones, in so many minutes. Later spells of a cell do not count: they come after a disturbance."""
    rows = []
    for arm, signals in SIGNALS.items():
        of_arm = [c for c in cells if c.arm == arm]
        for signal in ((name, form) for name in signals for form in FORMS):
            quiet = [np.where(c.quiet, c.signals[signal], math.nan) for c in of_arm if c.scenario == QUIET]
            minutes = sum(int((~np.isnan(v)).sum()) for v in quiet) / 60
            threshold = threshold_for(quiet, RARE * minutes, LONGEST)
            for scenario in (*STEPS, *SLOPES):
                events = [c for c in of_arm if c.scenario == scenario and c.event is not None]
                if not events:
                    continue
                areas = [area(groups_of(of_arm, scenario, signal, n)) for n in LEADS]
                ahead = np.array([lead_of(c.signals[signal], c.event, threshold, LONGEST) for c in events])
                rows.append([scenario, arm, *signal, len({c.pair for c in events}), len(events), float(np.median([c.event - CALM for c in events])), *(a.mean for a in areas), *(a.half for a in areas),
                             warned(ahead), middle(ahead), sum(alarms(v, threshold, LONGEST) for v in quiet), minutes])  # fmt: skip
    return pd.DataFrame(rows, columns=LEAD_COLUMNS)


# --- The log of the World Cup.


def read_log(name: Path = LOG) -> np.ndarray:
    """The requests in each five minutes, of shape (steps,); NaN where the data lack them."""
    return np.array([float(line) if line else math.nan for line in gzip.decompress(name.read_bytes()).decode().splitlines()])


def bursts_of(demand: np.ndarray) -> np.ndarray:
    """The steps at which bursts begin: the first in an hour whose demand is GROWTH times the mean of the hour before it, or more. Growth is what a limit with some
    room above the demand of now does not hold. (Twice the usual demand of the time of day is another thing: as this site grew, it was above that for days on end,
    without a burst.)"""
    mean = pd.Series(demand).shift(1).rolling(HOUR, min_periods=HOUR - 2).mean().to_numpy()
    at = np.flatnonzero(demand >= GROWTH * mean)
    return at[np.diff(at, prepend=-HOUR - 1) > HOUR]


def signals_of_log(demand: np.ndarray, bursts: np.ndarray) -> dict[str, np.ndarray]:
    """What is known of the demand at the end of each step, by signal; more is the sign. Nothing of it is later than that step. All arrays have the shape (steps,)."""
    x = np.log(np.where(demand > 0, demand, math.nan))
    begins = np.zeros(len(x))
    begins[bursts] = 1
    soon = np.convolve(begins, np.ones(HOUR))[HOUR - 1 :][: len(x)]  # the bursts that begin from this step on, within an hour
    largest = pd.Series(demand)[::-1].rolling(HOUR, min_periods=1).max()[::-1].to_numpy()  # of the hour that begins with this step
    return {
        "to the same time the day before": x - earlier(x, DAY),
        "to the same time the week before": x - earlier(x, 7 * DAY),
        "slope over 15 minutes": x - earlier(x, 3),
        "slope over 30 minutes": x - earlier(x, 6),
        "variability in an hour": pd.Series(x).diff().rolling(HOUR, min_periods=HOUR - 2).std().to_numpy(),
        "time of day: what followed the day before": earlier(np.log(np.where(largest > 0, largest, math.nan)), DAY - 1) - earlier(x, DAY),
        f"time of day: bursts in {HISTORY} days": sum(earlier(soon, DAY * k - 1) for k in range(1, HISTORY + 1)),
    }


LOG_COLUMNS = ["signal", "bursts", "days", *(f"auc_{STEP * n}" for n in HORIZONS), *(f"half_{STEP * n}" for n in HORIZONS), "warned_first", "warned", "lead", "alarms", "warned_best", "lead_best"]


def groups_of_log(values: np.ndarray, ahead: np.ndarray, horizon: int, part: slice) -> Groups:
    """The values of a signal at steps of a part of the log before a burst that begins within the horizon, and in quiet operation, by day. ahead is what
    steps_ahead returns."""
    known = ~np.isnan(values)
    known[: part.start], known[part.stop :] = False, False
    days = (np.arange(len(values)) + DAY - MIDNIGHT) // DAY
    found = {}
    for day in np.unique(days[known]):
        of = known & (days == day)
        found["", int(day)] = (values[of & (ahead >= 1) & (ahead <= horizon)], values[of & (ahead > HOUR)])
    return found


def steps_ahead(n: int, bursts: np.ndarray) -> np.ndarray:
    """How many steps after each of the n steps the next burst begins; more than HOUR where there is none. It is 0 in a burst: from its first step on, for an hour.
    It has the shape (n,)."""
    found = np.full(n, n + HOUR)
    for b in bursts[::-1]:
        found[:b] = b - np.arange(b)
    for b in bursts:
        found[b : b + HOUR] = 0
    return found


def leads_of_log(demand: np.ndarray) -> pd.DataFrame:
    """A row for each signal. The first half of the log chooses the threshold: the lowest with at most A_DAY false alarms a day, those that no burst follows within an
    hour. warned_first is the part of its bursts before which the threshold is passed (within an hour). All else is of the second half: its bursts, the days with
    them, the area under the ROC curve and the half width of its interval for each horizon in minutes, the part of the bursts warned of, the median lead in minutes
    until the end of a burst's first five, when anyone sees it (0 where no sign precedes it), and the false alarms a day. warned_best and lead_best are as if the
    second half itself had chosen the threshold: with so many false alarms none does better."""
    bursts = bursts_of(demand)
    ahead = steps_ahead(len(demand), bursts)
    halves = halves_of(demand)
    rows = []
    for signal, values in signals_of_log(demand, bursts).items():
        quiet = [np.where(ahead > HOUR, values, math.nan)[half] for half in halves]
        days = [len(half) / DAY for half in quiet]
        chosen, best = (threshold_for([q], A_DAY * n, HOUR) for q, n in zip(quiet, days, strict=True))
        calm = np.where(ahead > 0, values, math.nan)  # in a burst nobody needs a sign
        areas = [area(groups_of_log(values, ahead, h, halves[1])) for h in HORIZONS]
        of_first, of_second, at_best = (
            np.array([lead_of(calm, b, threshold, HOUR) for b in bursts if half.start <= b < half.stop])
            for half, threshold in ((halves[0], chosen), (halves[1], chosen), (halves[1], best))
        )
        rows.append([signal, len(of_second), areas[0].n, *(a.mean for a in areas), *(a.half for a in areas), warned(of_first), warned(of_second), middle(of_second) * STEP,
                     alarms(quiet[1], chosen, HOUR) / days[1], warned(at_best), middle(at_best) * STEP])  # fmt: skip
    return pd.DataFrame(rows, columns=LOG_COLUMNS)


def halves_of(demand: np.ndarray) -> tuple[slice, slice]:
    """The steps of both halves of the log, without those for which signals have no past."""
    return slice((HISTORY + 1) * DAY, len(demand) // 2), slice(len(demand) // 2, len(demand))


def warned(leads: np.ndarray) -> float:
    """The part of the events that a sign precedes, given their leads; NaN without events."""
    return float((leads > 0).mean()) if len(leads) else math.nan


def middle(leads: np.ndarray) -> float:
    """The median of leads; NaN without events."""
    return float(np.median(leads)) if len(leads) else math.nan


# --- What the chapter has.


@dataclass
class Signs:
    """All that the chapter says of early signs."""

    cells: list[Cell]
    leads: pd.DataFrame  # what leads_of_cells returns
    demand: np.ndarray  # what read_log returns
    of_log: pd.DataFrame  # what leads_of_log returns


def signs_of(data: Data, log: Path = LOG) -> Signs:
    """All of it, from the cells of tier 1 and the file of the log."""
    cells, demand = cells_of(data), read_log(log)
    return Signs(cells, leads_of_cells(cells), demand, leads_of_log(demand))


def interval(mean: float, half: float) -> str:
    """An area with its interval, of which the ends are at most those of an area."""
    if math.isnan(mean):
        return "–"
    return f"{mean:.2f}" + ("" if math.isnan(half) else f" ({max(0, mean - half):.2f} to {min(1, mean + half):.2f})")


def seconds_of(lead: float) -> str:
    return f"{lead:.0f} s" + (" or more" if lead == LONGEST else "")


def of_seconds(signs: Signs, ahead: int = AHEAD, arms: tuple[str, ...] = ("static", "guard")) -> str:
    """The table of tier 1, with the levels of the signals: the area so many seconds ahead, and the median lead."""
    rows, of = [], signs.leads[(signs.leads["form"] == "level") & signs.leads["arm"].isin(arms)]
    columns = list(dict.fromkeys(name for arm in arms for name in SIGNALS[arm]))
    for (scenario, arm), found in of.groupby(["scenario", "arm"], sort=False):
        by_signal = found.set_index("signal")
        first, cells = found.iloc[0], []
        for name in columns:
            r = by_signal.loc[name] if name in by_signal.index else None
            cells.append("–" if r is None or math.isnan(r[f"auc_{ahead}"]) else f"{interval(r[f'auc_{ahead}'], r[f'half_{ahead}'])}; {seconds_of(r['lead'])}")
        rows.append([scenario, arm, str(first["pairs"]), str(first["events"]), number(first["after"], 0), *cells])
    order = {name: i for i, name in enumerate((*STEPS, *SLOPES))}
    rows.sort(key=lambda row: (order[row[0]], arms.index(row[1])))
    return table(["scenario", "arm", "pairs", "spells", "begin after, s", *columns], rows, left=2)


def of_quiet(signs: Signs, arm: str = "static") -> str:
    """How much quiet operation the false alarms of an arm are counted in."""
    cells = [c for c in signs.cells if c.scenario == QUIET and c.arm == arm]
    return f"{sum(c.quiet.sum() for c in cells) / 60:.1f} minutes of {len({c.pair for c in cells})} pairs"


def of_all_seconds(signs: Signs) -> str:
    """As of_seconds, with all arms, signals, forms and leads."""
    rows = [
        [r["scenario"], r["arm"], r["signal"], r["form"], str(r["pairs"]), str(r["events"]), *(interval(r[f"auc_{n}"], r[f"half_{n}"]) for n in LEADS), number(100 * r["warned"], 0), number(r["lead"], 0),
         f"{r['alarms']} in {r['minutes']:.1f}"]
        for _, r in signs.leads.iterrows()
    ]  # fmt: skip
    return table(["scenario", "arm", "signal", "", "pairs", "spells", *(f"{n} s" for n in LEADS), "warned of, %", "lead, s", "false alarms, minutes"], rows, left=4)


def of_five_minutes(signs: Signs) -> str:
    """The table of the log of the World Cup."""
    rows = [
        [r["signal"], *(interval(r[f"auc_{STEP * n}"], r[f"half_{STEP * n}"]) for n in HORIZONS), number(100 * r["warned_first"], 0), number(100 * r["warned"], 0), number(r["lead"], 0), number(r["alarms"], 2),
         number(100 * r["warned_best"], 0), number(r["lead_best"], 0)]
        for _, r in signs.of_log.iterrows()
    ]  # fmt: skip
    head = ["signal", *(f"{STEP * n} min" for n in HORIZONS), "warned of in the first half, %", "warned of, %", "lead, min", "false alarms a day", "at best, %", "lead at best, min"]
    return table(head, rows)


def tells(of: pd.DataFrame, ahead: int = AHEAD) -> pd.DataFrame:
    """The rows of leads whose signal is a sign: its area so many seconds ahead lies above one half with its interval, and its threshold is passed so early before
    half of the spells or more. What is a part of the outcome itself is none."""
    return of[(of["signal"] != OUTCOME) & (of[f"auc_{ahead}"] - of[f"half_{ahead}"] > 0.5) & (of["lead"] >= ahead)]


def answer(signs: Signs) -> str:
    """The answer, in a sentence for what comes at once, one for what comes by and by, and one for the log."""
    return " ".join(dict.fromkeys([of_steps(signs.leads), of_slopes(signs.leads), of_days(signs.of_log)]))


def of_steps(of: pd.DataFrame) -> str:
    """The sentence for scenarios in which load comes at once, given what leads_of_cells returns. A sign that is found there is chance, or the beginning of a cell."""
    of = of[of["scenario"].isin(STEPS) & (of["signal"] != OUTCOME)]
    if of.empty:
        return NOT_RUN
    found = tells(of)
    names = ", ".join(s for s in STEPS if s in set(of["scenario"]))
    says = "none is a sign" if found.empty else f"{len(found)} look like a sign, by chance"
    return (f"Load that comes at once ({names}) has no precursor by construction, save a forecast by the time of day in *bursts*, which come each day, and of {len(of)} combinations of scenario, arm "
            f"and signal {says}: clients are answered badly {number(of['after'].min(), 0)} to {number(of['after'].max(), 0)} s after it has come.")  # fmt: skip


def of_slopes(of: pd.DataFrame) -> str:
    """The sentence for scenarios in which harm comes by and by: the sign with the longest lead, by arm."""
    of = of[of["scenario"].isin(SLOPES) & of["arm"].isin(["static", "guard"])]
    if of.empty:
        return NOT_RUN
    parts = []
    for (scenario, arm), here in of.groupby(["scenario", "arm"], sort=False):
        found = tells(here).sort_values(["lead", f"auc_{AHEAD}"], ascending=False, kind="stable")
        if found.empty:
            parts.append(f"*{scenario}*, {arm}: none")
        else:
            r = found.iloc[0]
            parts.append(f"*{scenario}*, {arm}: the {r['form']} of *{r['signal']}*, {seconds_of(r['lead'])} before, of area {interval(r[f'auc_{AHEAD}'], r[f'half_{AHEAD}'])}")
    return f"Where harm comes by and by, the earliest sign at a false alarm in ten minutes, and its area {AHEAD} s ahead, are: {'; '.join(sorted(parts, key=lambda p: SLOPES.index(p.split('*')[1])))}."


def of_days(of: pd.DataFrame) -> str:
    """The sentence for the log, given what leads_of_log returns."""
    if of.empty or not of["bursts"].iloc[0]:
        return NOT_RUN
    minutes = STEP * HORIZONS[1]
    ranked, chosen, best = (of.loc[of[c].idxmax()] for c in (f"auc_{minutes}", "warned_first", "warned"))

    def part(r: pd.Series) -> str:
        return f"*{r['signal']}* precedes {number(100 * r['warned'], 0)} % of them"

    return (f"In the second half of the World Cup's log, with its {ranked['bursts']} bursts and thresholds that the first half has chosen for {A_DAY:g} false alarm a day, {part(ranked)}, "
            f"though its area {minutes} minutes ahead is the largest, {interval(ranked[f'auc_{minutes}'], ranked[f'half_{minutes}'])}; {part(chosen)}, the best of the first half; and {part(best)}, "
            f"the best after the fact, with a median lead of {number(best['lead'], 0)} minutes and {number(best['alarms'], 2)} false alarms a day.")  # fmt: skip


LINES = [("black", "-"), ("0.3", "--"), ("0.55", "-."), ("0.7", ":")]  # tell curves apart in grey, too


def figure(signs: Signs, arm: str = "static", ahead: int = AHEAD) -> Figure | None:
    """ROC curves: a part for each scenario of tier 1 with the levels of the signals, and one for the log, with the same axes."""
    of_arm = [c for c in signs.cells if c.arm == arm]
    scenarios = [s for s in (*STEPS, *SLOPES) if any(c.scenario == s and c.event is not None for c in of_arm)]
    if not scenarios:
        return None
    names = [name for name in SIGNALS[arm] if name != OUTCOME][: len(LINES)]
    columns = 4
    count = len(scenarios) + 1
    drawn, all_axes = plt.subplots(-(-count // columns), columns, figsize=(7.5, 2.2 * -(-count // columns) + 0.4), sharex=True, sharey=True, squeeze=False)
    for axes, scenario in zip(all_axes.flat, scenarios, strict=False):
        groups = [groups_of(of_arm, scenario, (name, "level"), ahead) for name in names]
        curves_of(axes, f"{scenario}, {ahead} s ahead", dict(zip(names, groups, strict=True)))
    demand = signs.demand
    bursts = bursts_of(demand)
    steps = steps_ahead(len(demand), bursts)
    values = signals_of_log(demand, bursts)
    shown = ["slope over 30 minutes", "to the same time the day before", f"time of day: bursts in {HISTORY} days"]
    last = all_axes.flat[len(scenarios)]
    curves_of(last, f"log, {STEP * HORIZONS[1]} min ahead", {name: groups_of_log(values[name], steps, HORIZONS[1], halves_of(demand)[1]) for name in shown})
    for axes in all_axes.flat[count:]:
        axes.set_visible(False)
    handles = [plt.Line2D([], [], color=color, ls=style, lw=1.4) for color, style in LINES]
    both = [f"{a}; in the log: {b.removeprefix('to the ')}" for a, b in zip(names, shown, strict=False)] + names[len(shown) :]
    drawn.legend(handles[: len(both)], both, fontsize=7, ncols=1, loc="outside upper center", frameon=False)
    drawn.supxlabel("quiet operation above the threshold, %", fontsize=8)
    drawn.supylabel("events above it, %", fontsize=8)
    return drawn


def curves_of(axes: plt.Axes, title: str, groups: dict[str, Groups]) -> None:
    axes.plot([0, 100], [0, 100], color="0.75", lw=0.8)
    for (color, style), of in zip(LINES, groups.values(), strict=False):
        early, quiet = (np.concatenate([v[i] for v in of.values()] or [np.empty(0)]) for i in (0, 1))
        if len(early) and len(quiet):
            false, hits = roc(early, quiet)
            axes.plot(100 * false.round(4), 100 * hits.round(4), color=color, ls=style, lw=1.4)
    axes.set_title(title, loc="left", fontsize=8)
    axes.set_aspect("equal")
    axes.set_xticks([0, 50, 100])
    axes.set_yticks([0, 50, 100])
