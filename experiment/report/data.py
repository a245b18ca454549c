"""Reads the raw data of both tiers into tables of pandas, with a row for each run and the measures of docs/experiment.md."""

import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

CAPACITY = 160.0  # what the service can do, in requests a second
SLOW = 0.45  # of that, in the scenario in which it slows down
OUTCOMES = ["answered", "limited", "turned_away", "refused", "left", "failed"]  # as the seconds of a cell have them
SHORTEST, GROWTH = 0.1, 1.02  # of the buckets of histograms: milliseconds, and how much longer each begins than the one before
WINDOWS = "windows"  # the scenario in which the forecast is on and off by turns


@dataclass
class Data:
    virtual: pd.DataFrame  # a row for each run of tier 2
    virtual_origin: dict
    real: pd.DataFrame  # a row for each cell of tier 1 that counts
    seconds: dict  # of each cell, by scenario, algorithm, arm and pair: a table
    thrown: list  # the first lines of the cells that were thrown away
    records: list  # the first lines of the cells that count
    more: pd.DataFrame  # as virtual, of the combinations that the protocol has open
    windows: pd.DataFrame  # a row for each window with the forecast on or off
    explored: "Data | None" = None  # what belongs to no hypothesis
    effects: pd.DataFrame | None = None  # a row for each change of advice and proxy: interval_s, proxy, delay_ms (NaN: not before the next change), within_ms

    @property
    def tiers(self) -> dict[str, pd.DataFrame]:
        """The runs that hypotheses are decided by, by the tier of a look in hypotheses.toml."""
        return {"virtual": pd.concat([self.virtual, self.more]), "real": self.real, "windows": self.windows}


def first_line(name: Path) -> dict:
    """What describes a cell."""
    with gzip.open(name, "rt") as lines:
        return json.loads(next(lines))


def read(folder: Path) -> Data:
    virtual, origin = read_virtual(folder / "virtual.csv.gz")
    records, seconds, rows, windows = [], {}, [], []
    for name in sorted((folder / "real").rglob("*.jsonl.gz")):
        with gzip.open(name, "rt") as lines:
            record = json.loads(next(lines))
            if record["scenario"] == WINDOWS:
                windows += rows_of_windows(record, [json.loads(line) for line in lines])
                continue
            of = table_of_seconds([json.loads(line) for line in lines])
        key = (record["scenario"], record["algorithm"], record["arm"], record["pair"])
        if record["sigma"] != 0:
            continue
        records.append(record)
        seconds[key] = of
        rows.append(measures(record, of))
    simulated = read_simulated(folder / "simulated.csv")
    for row in rows:
        row["simulated"], row["spread"], row["followed"] = simulated.get((row["situation"], row["algorithm"], row["policy"], row["seed"]), (math.nan,) * 3)
    real = pd.DataFrame(rows, columns=["situation", "algorithm", "policy", "seed", *REAL_MEASURES, *RESOURCES, "rejections", "simulated", "spread", "followed", "lateness"])
    thrown = [first_line(name) for name in sorted((folder / "real").rglob("*.thrown-*"))]
    more, _ = read_virtual(folder / "virtual-open.csv.gz")
    explored = read(folder / "explored") if (folder / "explored").is_dir() else None
    effects = [pd.read_csv(name, comment="#") for name in sorted((folder / "effect").glob("*.csv"))]
    return Data(virtual, origin, real, seconds, thrown, records, more, pd.DataFrame(windows, columns=["situation", "algorithm", "policy", "seed", "mean_ms", "lateness"]), explored, pd.concat(effects) if effects else None)


def read_virtual(name: Path) -> tuple[pd.DataFrame, dict]:
    if not name.exists():
        return pd.DataFrame(columns=["situation", "policy", "algorithm", "seed", "good", "mean_ms"]), {}
    with gzip.open(name, "rt") as lines:
        origin = json.loads(next(lines).removeprefix("#"))
    found = pd.read_csv(name, comment="#", keep_default_na=False)
    for time in ("mean", "p95", "p99"):
        found[time + "_ms"] = 1000 * found.pop(time)
    found["limited"] = found["rejected"] - found["turned_away"]
    with_abuse = set(found[(found["policy"] == "none") & (found["abuse"] > 0)]["situation"])
    found.loc[~found["situation"].isin(with_abuse), "abuse"] = math.nan  # a situation without abusers has no such part
    return found, origin


def read_simulated(name: Path) -> dict:
    """By scenario, algorithm, arm and pair: the goodput of cells in the simulation, its standard deviation, and the goodput with the limits that were in force in them."""
    if not name.exists():
        return {}
    rows = pd.read_csv(name).itertuples(index=False)
    return {(row.scenario, row.algorithm, row.arm, row.pair): (row.good, row.spread, row.followed) for row in rows}


def table_of_seconds(lines: list) -> pd.DataFrame:
    rows = []
    for line in lines:
        row = {"second": line["second"], "first": line["first"], **line.get("seen", {})}
        for who in ("own", "others"):
            row |= {f"{who}_{outcome}": n for outcome, n in zip(OUTCOMES, line[who], strict=True)}
        rows.append(row)
    return pd.DataFrame(rows).set_index("second").sort_index()


def rows_of_windows(record: dict, lines: list[dict]) -> list[dict]:
    """A row for each window of a run. Its seed is the number of its block, counted through all runs. What was thrown away has no mean."""
    blocks = len(lines) // 2
    return [
        {
            "situation": WINDOWS,
            "algorithm": record["algorithm"],
            "policy": record["arm"] + ("" if line["on"] else " off"),
            "seed": (record["pair"] - 1) * blocks + line["block"] + 1,
            "mean_ms": math.nan if line["thrown"] else times(line["times_of_own"])["mean_ms"],
            "lateness": line["lateness"],
        }
        for line in lines
    ]


REAL_MEASURES = {
    "good": "goodput, %",
    "mean_ms": "mean, ms",
    "p95_ms": "p95, ms",
    "p99_ms": "p99, ms",
    "limited": "429, %",
    "turned_away": "503, %",
    "of_excess": "of the excess, %",
    "abuse": "abuse let through, %",
    "failures": "B refused, %",
    "recovery": "recovery, s",
    "deviation": "deviation, points",
    "lost": "throughput lost, %",
    "changes": "changes an hour",
}

# What the proxies used, of cells that measured it.
RESOURCES = {
    "cpu_caddy": "CPU of a Caddy, µs a request",
    "cpu_traefik": "CPU of Traefik, µs a request",
    "wait": "wait for a core, s for each s of CPU",
    "memory_caddy": "memory of a Caddy, MB",
    "memory_traefik": "memory of Traefik, MB",
    "goroutines": "goroutines of a Caddy at most",
    "goroutines_traefik": "goroutines of Traefik at most",
}


def measures(record: dict, of: pd.DataFrame) -> dict:
    """The measures of a cell, as the chapter defines them. What does not apply is NaN."""
    event = of[of.index >= 0]
    event = event[event.index < record["event"]]
    own, others = record["own"], record["others"]
    capacity = np.array([CAPACITY * (SLOW if record["scenario"] == "slow" and 20 <= n < record.get("over", 0) else 1) for n in event.index])
    own_sent = event[[f"own_{o}" for o in OUTCOMES]].sum(axis=1)
    sent = own_sent + event[[f"others_{o}" for o in OUTCOMES]].sum(axis=1)
    of_all = {o: own.get(o, 0) + others.get(o, 0) for o in ("limited", "turned_away")}
    rejected = sum(of_all.values())
    excess = float(np.maximum(0, sent - capacity).sum())
    reached = {o: own.get(o, 0) + others.get(o, 0) for o in ("answered", "refused", "left")}
    could = float(np.minimum(own_sent, capacity).sum())
    changed = sum(int((event[c].dropna().diff().dropna() != 0).sum()) for c in ("limit_of_client", "limit_of_all") if c in event)
    return {
        "situation": record["scenario"],
        "algorithm": record["algorithm"],
        "policy": record["arm"],
        "seed": record["pair"],
        "good": 100 * record["good"] / max(1, record["legitimate"]),
        **times(record["times_of_own"]),
        **{o: 100 * n / max(1, int(sent.sum())) for o, n in of_all.items()},
        "of_excess": 100 * rejected / excess if excess >= 100 else math.nan,
        "abuse": 100 * sum(others.get(o, 0) for o in ("answered", "refused", "left")) / sum(others.values()) if others else math.nan,
        "failures": 100 * reached["refused"] / max(1, sum(reached.values())),
        "recovery": recovery(event, record.get("over", 0)),
        "deviation": deviation(event, own_sent),
        "lost": 100 * (1 - float(event["own_answered"].sum()) / max(1, could)),
        "changes": changed / record["event"] * 3600,
        **resources(record.get("used") or {}, int(sent.sum())),
        "rejections": rejected / record["event"],
        "lateness": record["lateness"],
    }


def resources(used: dict, sent: int) -> dict:
    """What the proxies of a cell used, as RESOURCES has it. A third of the requests that were sent goes to each proxy. NaN where it was not measured."""
    if not {"caddy1", "caddy2", "traefik"} <= used.keys():
        return dict.fromkeys(RESOURCES, math.nan)
    caddys, traefik = [used["caddy1"], used["caddy2"]], used["traefik"]
    cpu = sum(u["cpu"] for u in (*caddys, traefik))
    each = max(1, sent) / 3
    return {
        "cpu_caddy": 1e6 * sum(u["cpu"] for u in caddys) / 2 / each,
        "cpu_traefik": 1e6 * traefik["cpu"] / each,
        "wait": sum(u["waited"] for u in (*caddys, traefik)) / max(1e-9, cpu),
        "memory_caddy": sum(u["resident"] for u in caddys) / 2,
        "memory_traefik": traefik["resident"],
        "goroutines": used["caddy1"].get("goroutines", math.nan),
        "goroutines_traefik": traefik.get("goroutines", math.nan),
    }


def times(histograms: dict) -> dict:
    """Mean and quantiles of response times of legitimate clients, in milliseconds. Who left counts with its patience."""
    counts: dict[int, int] = {}
    total = 0.0
    for outcome in ("answered", "left"):
        histogram = histograms.get(outcome, {"sum": 0, "counts": {}})
        total += 1000 * histogram["sum"]
        for bucket, n in histogram["counts"].items():
            counts[int(bucket)] = counts.get(int(bucket), 0) + n
    n = sum(counts.values())
    if n == 0:
        return {"mean_ms": math.nan, "p95_ms": math.nan, "p99_ms": math.nan}
    return {"mean_ms": total / n, "p95_ms": quantile(counts, 0.95), "p99_ms": quantile(counts, 0.99)}


def quantile(counts: dict[int, int], q: float) -> float:
    """A quantile of a histogram, in milliseconds: the geometric middle of the bucket that it is in."""
    wanted = q * sum(counts.values())
    for bucket in sorted(counts):
        wanted -= counts[bucket]
        if wanted <= 0:
            return SHORTEST * GROWTH ** (bucket + 0.5)
    return math.nan


def recovery(event: pd.DataFrame, over: float) -> float:
    """How many seconds after the event was over three seconds in a row begin in which nine of ten legitimate attempts were answered."""
    if not over:
        return math.nan
    own = event[[f"own_{o}" for o in OUTCOMES]].sum(axis=1)
    well = (event["own_answered"] >= 0.9 * own)[event.index >= over]
    for i in range(len(well) - 2):
        if well.iloc[i : i + 3].all():
            return float(well.index[i] - over)
    return math.nan


def deviation(event: pd.DataFrame, own: pd.Series) -> float:
    """By how many points the part of legitimate attempts that were answered fell below 100 % at most, over five seconds."""
    over = own.rolling(5).sum()
    answered = event["own_answered"].rolling(5).sum()
    return float((100 * (1 - answered / over)).max())
