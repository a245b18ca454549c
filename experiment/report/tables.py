"""The tables of the chapter, in Markdown."""

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

import pandas as pd
from checks import agrees, standstills
from data import REAL_MEASURES, RESOURCES, Data
from inference import Comparison, Estimate, Finding, comparisons, estimate, paired, verdict

if TYPE_CHECKING:
    from power import Row

POLICIES = {"none": "no limits", "low": "low", "tuned": "tuned", "cap": "tuned, cap", "study": "the study's", "guard": "guard"}
NOT_RUN = "*Not run yet.*"


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A table whose first columns are text, and the others numbers."""
    if not rows:
        return NOT_RUN
    lines = [head, ["---"] * left + ["---:"] * (len(head) - left), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float, digits: int = 1, sign: bool = False) -> str:
    """A number with a minus of its own, and none before a zero."""
    return f"{value:{'+' if sign else ''}z.{digits}f}".replace("-", "−")


def with_interval(e: Estimate, digits: int = 1, sign: bool = False) -> str:
    if e.n == 0 or math.isnan(e.mean):
        return "–"
    mean = number(e.mean, digits, sign)
    return mean if math.isnan(e.half) else f"{mean} ± {e.half:.{digits}f}"


def ordered(column: pd.Series) -> list[str]:
    return list(column.drop_duplicates())


def runs_of(runs: pd.DataFrame, **values: str) -> pd.DataFrame:
    return runs[(runs[list(values)] == pd.Series(values)).all(axis=1)]


def virtual_good(data: Data, algorithm: str) -> str:
    """Goodput of each policy in each situation."""
    runs, rows = data.virtual, []
    for situation in ordered(runs["situation"]):
        row = [situation]
        for policy in POLICIES:
            of = runs_of(runs, situation=situation, policy=policy, algorithm="" if policy == "none" else algorithm)
            row.append(with_interval(estimate(of["good"])))
        rows.append(row)
    return table(["situation", *POLICIES.values()], rows)


def virtual_gain(data: Data) -> str:
    """guard − tuned, by situation and algorithm."""
    runs, algorithms, rows = data.virtual, algorithms_of(data.virtual), []
    for situation in ordered(runs["situation"]):
        row = [situation]
        for algorithm in algorithms:
            sides = [{"situation": situation, "policy": p, "algorithm": algorithm} for p in ("guard", "tuned")]
            row.append(with_interval(paired(runs, "good", *sides), 2, sign=True))
        rows.append(row)
    return table(["situation", *algorithms], rows)


def algorithms_of(runs: pd.DataFrame) -> list[str]:
    return [a for a in ordered(runs["algorithm"]) if a]


def virtual_measures(data: Data, policies: tuple[str, ...] = ("tuned", "study", "guard")) -> str:
    """The other measures, with the token bucket."""
    columns = {"limited": REAL_MEASURES["limited"], "turned_away": REAL_MEASURES["turned_away"], "abuse": "abuse let through, %", "refused": "B refused, %", "mean_ms": "mean, ms", "p95_ms": "p95, ms", "p99_ms": "p99, ms", "changes": "changes an hour"}
    rows = []
    for situation in ordered(data.virtual["situation"]):
        for policy in policies:
            of = runs_of(data.virtual, situation=situation, policy=policy, algorithm="token_bucket")
            digits = {"mean_ms": 0, "p95_ms": 0, "p99_ms": 0, "changes": 0}
            rows.append([situation, POLICIES[policy], *(with_interval(estimate(of[c]), digits.get(c, 1)) for c in columns)])
    return table(["situation", "policy", *columns.values()], rows, left=2)


def best_gain(data: Data, situation: str) -> str:
    """What the guard gains against the best static limits of the grid, with the token bucket, in points."""
    return next((row[5] for row in best_rows(data) if row[:2] == [situation, "token_bucket"]), "–")


def virtual_best(data: Data) -> str:
    """The best static limits of the grid, chosen after the fact for each situation and algorithm, against the tuned ones and the guard."""
    return table(["situation", "algorithm", "best static", "its goodput", "tuned − best", "guard − best"], best_rows(data), left=3)


def best_rows(data: Data) -> list[list[str]]:
    runs, rows = data.virtual, []
    if runs.empty:
        return rows
    grid = runs[runs["policy"].str.startswith("grid")]
    for situation in ordered(grid["situation"]):
        for algorithm in algorithms_of(grid):
            of = runs_of(grid, situation=situation, algorithm=algorithm)
            means = of.groupby("policy", sort=False)["good"].mean()
            if means.empty:
                continue
            best = str(means.idxmax())
            client, all_ = best.split()[1:]
            seeds = of["seed"].drop_duplicates()
            others = [
                with_interval(paired(runs[runs["seed"].isin(seeds)], "good", {"situation": situation, "policy": p, "algorithm": algorithm}, {"situation": situation, "policy": best, "algorithm": algorithm}), 2, sign=True)
                for p in ("tuned", "guard")
            ]
            rows.append([situation, algorithm, f"{client} × client, {all_} × all", f"{means.max():.1f}", *others])
    return rows


def real_scenario(data: Data, scenario: str) -> str:
    """All measures of a scenario."""
    rows = []
    runs = runs_of(data.real, situation=scenario) if len(data.real) else data.real
    columns = [c for c in REAL_MEASURES if runs[c].notna().any()]
    for algorithm in sorted(set(runs["algorithm"])):
        for arm in sorted(set(runs_of(runs, algorithm=algorithm)["policy"]), key=arm_order):
            of = runs_of(runs, algorithm=algorithm, policy=arm)
            digits = {"mean_ms": 0, "p95_ms": 0, "p99_ms": 0, "changes": 0}
            rows.append([algorithm, arm, str(len(of)), *(with_interval(estimate(of[c]), digits.get(c, 1)) for c in columns)])
    return table(["algorithm", "arm", "runs", *(REAL_MEASURES[c] for c in columns)], rows, left=2)


def real_short(data: Data, algorithm: str = "token_bucket", arms: tuple[str, ...] = ("static", "guard", "study")) -> str:
    """What a reader compares, of each scenario and the arms that matter."""
    columns = ["good", "p95_ms", "limited", "turned_away", "abuse", "failures", "recovery", "deviation"]
    digits = {"good": 1, "recovery": 1, "abuse": 1, "limited": 1, "turned_away": 1, "failures": 1}
    rows = []
    for scenario in sorted(set(data.real["situation"])):
        for arm in arms:
            of = runs_of(data.real, situation=scenario, algorithm=algorithm, policy=arm)
            if len(of):
                rows.append([scenario, arm, str(len(of)), *(with_interval(estimate(of[c]), digits.get(c, 0)) for c in columns)])
    return table(["scenario", "arm", "runs", *(REAL_MEASURES[c] for c in columns)], rows, left=2)


def resources(data: Data, situation: str = "") -> str:
    """What the proxies used, of the cells that measured it: of one situation, or of all."""
    rows = []
    measured = data.real[data.real["cpu_caddy"].notna()]
    if situation:
        measured = runs_of(measured, situation=situation)
    digits = {"wait": 1, "memory_caddy": 0, "memory_traefik": 0, "cpu_caddy": 0, "cpu_traefik": 0, "goroutines": 0, "goroutines_traefik": 0}
    columns = {c: name for c, name in RESOURCES.items() if measured[c].notna().any()}
    for scenario in sorted(set(measured["situation"])):
        for algorithm in sorted(set(runs_of(measured, situation=scenario)["algorithm"])):
            for arm in sorted(set(runs_of(measured, situation=scenario, algorithm=algorithm)["policy"]), key=arm_order):
                of = runs_of(measured, situation=scenario, algorithm=algorithm, policy=arm)
                rows.append([scenario, algorithm, arm, str(len(of)), *(with_interval(estimate(of[c]), digits[c]) for c in columns)])
    return table(["scenario", "algorithm", "arm", "runs", *columns.values()], rows, left=3)


FLOOD = re.compile(r"flood (\d+)")


def floods(data: Data) -> pd.DataFrame:
    """The cells in which a flood of requests is rejected, with the rate of the flood as "rate"."""
    runs = data.explored.real if data.explored else data.real.iloc[:0]
    found = runs[runs["situation"].str.fullmatch(FLOOD.pattern)].copy()
    found["rate"] = [int(FLOOD.fullmatch(s)[1]) for s in found["situation"]]
    return found


def flood(data: Data) -> str:
    """What heavy rejection does to the legitimate clients and to the proxies."""
    cells, rows = floods(data), []
    resources = [c for c in RESOURCES if c != "wait" and (c != "goroutines_traefik" or cells[c].notna().any())]  # a column that no cell has yet is left out
    for rate in sorted(set(cells["rate"])):
        of = cells[cells["rate"] == rate]
        slower = [paired(cells, c, {"rate": rate}, {"rate": 0}) for c in ("mean_ms", "p99_ms")]
        columns = {"rejections": 0, "good": 2, "mean_ms": 1, "p99_ms": 0, **dict.fromkeys(resources, 0)}
        row = [str(len(of)), *(with_interval(estimate(of[c]), digits) for c, digits in columns.items())]
        rows.append(row[:5] + ([with_interval(d, 1, sign=True) for d in slower] if rate else ["–", "–"]) + row[5:])
    head = ["runs", "rejected a second", "goodput, %", "mean, ms", "p99, ms", "mean: slower by, ms", "p99: slower by, ms", *(RESOURCES[c] for c in resources)]
    return table(head, rows, left=0)


def stuck(data: Data) -> int:
    """The cells with a flood that were thrown away, and in which legitimate clients gave up."""
    return sum(1 for record in data.explored.thrown if FLOOD.fullmatch(record["scenario"]) and record["own"].get("left")) if data.explored else 0


def effect(data: Data) -> str:
    """How long it takes from when advice is published until a proxy decides by it, in seconds."""
    rows = []
    if data.effects is None:
        return NOT_RUN
    for interval, of in data.effects.groupby("interval_s"):
        for kind, proxies in (("Caddy", ["caddy1", "caddy2"]), ("Traefik", ["traefik"])):
            delays = of[of["proxy"].isin(proxies)]["delay_ms"] / 1000
            there = delays.dropna()
            rows.append([f"{interval:g} s", kind, str(len(delays)), *(number(v, 2) for v in (there.median(), there.quantile(0.95), there.max())), str(len(delays) - len(there))])
    return table(["asked each", "proxy", "changes", "median, s", "95 % within, s", "at most, s", "never"], rows, left=2)


def cpu(data: Data) -> str:
    """The situation in which the service's CPU is what is short, in both tiers: what a guard and pressure change."""
    rows = []
    if data.explored is None:
        return NOT_RUN
    for tier, runs, first in (("on a virtual clock", data.explored.virtual, "tuned"), ("with real parts", data.explored.real, "static")):
        if runs.empty:
            continue
        of = runs_of(runs, situation="cpu", algorithm="token_bucket")
        for policy in (first, "guard", "guard+pressure"):
            found = of[of["policy"] == policy]
            if len(found):
                gain = [paired(of, "good", {"policy": policy}, {"policy": other}) for other in (first, "guard")]
                rows.append([tier, policy, str(len(found)), with_interval(estimate(found["good"])), with_interval(estimate(found["p95_ms"]), 0),
                             *("–" if policy in (first, other) else with_interval(d, 1, sign=True) for d, other in zip(gain, (first, "guard"), strict=True))])  # fmt: skip
    return table(["", "arm", "runs", "goodput, %", "p95, ms", "− static limits", "− guard"], rows, left=2)


TIERS = {("virtual",): "on a virtual clock", ("real", "windows"): "with real parts"}


def tiers_of(hypothesis: dict, findings: list[Finding]) -> list[tuple[str, list[Finding] | None]]:
    """The findings of a hypothesis by the words for a tier; None in one where it has no look."""
    looks = [look["tier"] for look in hypothesis["look"]]
    return [(words, [f for f in findings if f.tier in tiers] if any(look in tiers for look in looks) else None) for tiers, words in TIERS.items()]


def outcome(hypothesis: dict, findings: list[Finding]) -> tuple[str, str]:
    """What findings of a tier come to: a verdict, and its words with the margin."""
    says = verdict(hypothesis["test"], findings)
    if says != "equivalent":
        return says, says
    return says, f"equivalent within {max(f.within for f in findings if f.outcome == says):g} {hypothesis['unit']}"


def says(hypothesis: dict, findings: list[Finding], *allowed: str) -> str:
    """A verdict in words, to stand behind a sentence that claims the hypothesis. ValueError if it is one that the sentence does not allow: then that must be
    written anew."""
    words = []
    for tier, of in tiers_of(hypothesis, findings):
        if of is None:
            continue
        verdict_, text = outcome(hypothesis, of)
        if verdict_ not in (*allowed, "not run", "undecided"):
            raise ValueError(f"{hypothesis['name']} is {verdict_} {tier}, and the chapter says something else")
        words.append(f"{text} {tier}")
        holds = sum(f.outcome in allowed for f in of)
        if verdict_ == "undecided" and holds:
            words[-1] += f", where it holds in {holds} of {len(of)} combinations"
    return f"{hypothesis['name']}: " + "; ".join(words)


ARMS = ["static", "guard", "guard+go", "guard+prophet", "guard+oracle", "guard+random", "study"]


def arm_order(arm: str) -> tuple:
    return (ARMS.index(arm) if arm in ARMS else len(ARMS), arm)


def agreement(data: Data) -> str:
    """Where both tiers have played the same requests: goodput of both, and the difference."""
    rows = []
    real = data.real[data.real["simulated"].notna()]
    for scenario in sorted(set(real["situation"])):
        for arm in sorted(set(runs_of(real, situation=scenario)["policy"]), key=arm_order):
            of = runs_of(real, situation=scenario, policy=arm)
            d = estimate(of["good"] - of["simulated"])
            followed = estimate((of["good"] - of["followed"]).dropna())
            spread = math.sqrt((of["spread"] ** 2).mean() / len(of))
            far = "" if abs(d.mean) <= 2 else "more than 2 points, by chance" if abs(d.mean) <= 2 * spread else "more than 2 points"
            rows.append([scenario, arm, str(len(of)), f"{of['good'].mean():.1f}", f"{of['simulated'].mean():.1f}", f"{spread:.2f}", with_interval(d, 2, sign=True),
                         with_interval(followed, 2, sign=True) if followed.n else "–", far])  # fmt: skip
    return table(["scenario", "arm", "runs", "real", "simulated", "its spread", "real − simulated", "real − simulated with the same limits", ""], rows, left=2)


def real_differences(data: Data, right: str = "static") -> str:
    """The goodput of each arm − that of static limits."""
    rows = []
    real = data.real
    for scenario in sorted(set(real["situation"])):
        for algorithm in sorted(set(runs_of(real, situation=scenario)["algorithm"])):
            of = runs_of(real, situation=scenario, algorithm=algorithm)
            for arm in sorted(set(of["policy"]) - {right}, key=arm_order):
                d = paired(of, "good", {"policy": arm}, {"policy": right})
                if d.n:
                    rows.append([scenario, algorithm, arm, str(d.n), with_interval(d, 2, sign=True)])
    return table(["scenario", "algorithm", "arm", "pairs", f"arm − {right}"], rows, left=3)


def advisers(data: Data, right: str = "guard", short: bool = False) -> str:
    """What advisors change, against the guard alone: goodput, and the mean response time. short has the goodput with the token bucket alone, a row for each scenario."""
    rows = []
    real = data.real
    for scenario in sorted(set(real["situation"])):
        for algorithm in sorted(set(runs_of(real, situation=scenario)["algorithm"])):
            of = runs_of(real, situation=scenario, algorithm=algorithm)
            for arm in sorted((a for a in set(of["policy"]) if "guard+" in a), key=arm_order):
                base = "low+guard" if arm.startswith("low+") else right
                good = paired(of, "good", {"policy": arm}, {"policy": base})
                mean = paired(of, "mean_ms", {"policy": arm}, {"policy": base})
                if good.n:
                    changes = estimate(runs_of(of, policy=arm)["changes"])
                    rows.append([scenario, algorithm, f"{arm} − {base}", str(good.n), with_interval(good, 2, sign=True), with_interval(mean, 2, sign=True), with_interval(changes, 0)])
    if short:
        found = {(row[0], row[2].removesuffix(f" − {right}")): row[4] for row in rows if row[1] == "token_bucket"}
        arms = [arm for arm in ARMS if any(arm == of for _, of in found)]
        return table(["scenario", *arms], [[s, *(found.get((s, arm), "–") for arm in arms)] for s in dict.fromkeys(s for s, _ in found)])
    return table(["scenario", "algorithm", "difference", "pairs", "goodput, points", "mean, ms", "changes an hour"], rows, left=3)


def gates(data: Data) -> str:
    """What the proxies' gates cut from advice, by arm and kind, and how often the client's limit changed before the event and in it."""
    rows = []
    counts: dict[str, Counter] = {}
    for record in data.records:
        if "guard+" not in record["arm"]:
            continue
        of = counts.setdefault(record["arm"], Counter())
        seconds = data.seconds[record["scenario"], record["algorithm"], record["arm"], record["pair"]]
        limits = seconds["limit_of_client"].dropna()
        changed = limits.index[limits.diff().fillna(0) != 0]
        of.update({"cells": 1, "before": int((changed < 0).sum()), "event": int(((changed >= 0) & (changed < record["event"])).sum())})
        for name, n in record["advice"].items():
            if found := re.match(r'clamped_total\{.*kind="(\w+)"', name):
                of["kind " + found[1]] += n
    kinds = sorted({name for of in counts.values() for name in of if name.startswith("kind ")}, key=lambda name: -sum(of[name] for of in counts.values()))
    for arm in sorted(counts, key=arm_order):
        of = counts[arm]
        rows.append([arm, str(of["cells"]), *(str(int(of[k])) for k in kinds), str(of["before"]), str(of["event"])])
    return table(["arm", "cells", *(k.removeprefix("kind ").replace("_", "-") for k in kinds), "changes before the event", "in it"], rows)


def left(compared: list[tuple[dict, list[Comparison]]]) -> str:
    """Which combinations that the protocol has open have not had all their pairs."""
    waiting: dict[str, str] = {}  # how many pairs are there, by the words for a combination
    everything = set()
    for hypothesis, of in compared:
        for c in of:
            if c.entry is None:
                continue
            name = f"{c.situation}, {c.algorithm or ' and '.join(c.entry['algorithms'])}" + (f", {c.what.split(' − ')[0]}" if c.tier == "windows" else "")
            everything.add(name)
            if not c.complete:
                there = len(c.values[c.values.index >= c.entry["first"]])
                waiting[name] = f"{name}: {there} of {c.entry['pairs']}"
    if not waiting:
        return f"All {len(everything)} combinations that the protocol has open have had all their pairs."
    return f"Of {len(everything)} combinations that the protocol has open, {len(waiting)} have not had all their pairs yet ({'; '.join(waiting.values())}), and stay undecided until then."


def signs(hypotheses_: list[dict], short: Data, full: Data) -> str:
    """Whether a short run has the signs of the full one: a row for each combination of a hypothesis in which the full run has a difference beyond its interval,
    and the short run has a pair. Those of tier 2 are counted together, and only others than the full run's are listed."""
    rows, counted, same = [], 0, 0
    for hypothesis in hypotheses_:
        whole = {(c.tier, c.what, c.situation, c.algorithm): c for c in comparisons(hypothesis, full.tiers)}
        for c in comparisons(hypothesis, short.tiers):
            other = whole.get((c.tier, c.what, c.situation, c.algorithm))
            here, there = c.values.mean(), estimate(other.values) if other else None
            if there is None or math.isnan(here) or not there.half < abs(there.mean):
                continue
            agrees_ = (here > 0) == (there.mean > 0)
            counted, same = counted + (c.tier == "virtual"), same + (c.tier == "virtual" and agrees_)
            if c.tier == "real" or not agrees_:
                rows.append([hypothesis["name"], c.tier, c.what, c.situation, c.algorithm or "–", number(here, 1, sign=True), with_interval(there, 1, sign=True), "the same" if agrees_ else "none" if here == 0 else "ANOTHER"])
    text = table(["", "tier", "difference", "situation", "algorithm", "here", "in the full run", "sign"], rows, left=5)
    return text + f"\n\nOn a virtual clock {same} of {counted} signs are the same."


def hypotheses(of: list[tuple[dict, list[Finding]]]) -> str:
    """The verdict of each hypothesis, in each tier."""
    rows = []
    for hypothesis, findings in of:
        rows.append([hypothesis["name"], hypothesis["claim"], *("–" if found is None else outcome(hypothesis, found)[1] for _, found in tiers_of(hypothesis, findings))])
    return table(["", "hypothesis", *TIERS.values()], rows, left=4)


def against(hypothesis: dict, findings: list[Finding]) -> str:
    """The combinations that do not confirm a hypothesis; of "differ", all."""
    kept = [f for f in findings if hypothesis["test"] == "differ" or f.outcome != "confirmed"]
    if not findings:
        return NOT_RUN
    text = f"{sum(f.outcome == 'confirmed' for f in findings)} of {len(findings)} combinations confirm it."
    if not kept:
        return text
    rows = []
    for f in kept:
        says = f"{f.outcome} within {f.within:g}" if f.outcome == "equivalent" else f.outcome
        rows.append([f.tier, f.what, f.situation, f.algorithm or "–", str(f.difference.n), with_interval(f.difference, 2, sign=True), says])
    return text + "\n\n" + table(["tier", "difference", "situation", "algorithm", "pairs", "mean", ""], rows, left=4)


def power(rows: "list[Row]") -> str:
    """What each open combination needs, and what the protocol gives it."""

    def pairs(n: int) -> str:
        return f"{n:,}" if n else "–"

    found = []
    for r in rows:
        c = r.comparison
        at = [number(100 * p, 0) if not math.isnan(p) else "–" for p in (r.power, r.power_for_margin)]
        found.append([r.hypothesis, c.tier, c.what, c.situation, c.algorithm or "–", f"{r.sd:.2f}", f"{r.upper:.2f}", f"{r.shift:.2f}", pairs(r.needed),
                      f"{r.margin:g}" if r.needed_for_margin else "–", pairs(r.needed_for_margin), pairs(r.pairs), *at])  # fmt: skip
    head = ["", "tier", "difference", "situation", "algorithm", "spread", "its upper end", "to find", "pairs needed", "widest margin", "pairs for it", "pairs of the protocol", "power, %", "power for the margin, %"]
    return table(head, found, left=5)


def bootstrap(of: list[tuple[dict, list]]) -> str:
    """Where the bootstrap's interval is another one than that by t."""
    names: dict[tuple, list[str]] = {}  # of the hypotheses, by the rest of the row
    everything = [(hypothesis["name"], *one) for hypothesis, found in of for one in found]
    for name, c, by_t, other, same in everything:
        if not (agrees(by_t, other) and same):
            ends = [f"{number(e.low, 2, sign=True)} to {number(e.high, 2, sign=True)}" for e in (by_t, other)]
            names.setdefault((c.tier, c.what, c.situation, c.algorithm or "–", str(by_t.n), *ends, "the same" if same else "another"), []).append(name)
    if not everything:
        return NOT_RUN
    differ = sum(len(n) for n in names.values())
    text = f"{len(everything) - differ} of {len(everything)} intervals agree, and come to the same."
    rows = [[", ".join(n), *row] for row, n in names.items()]
    return text + ("\n\n" + table(["", "tier", "difference", "situation", "algorithm", "pairs", "by t", "by the bootstrap", "outcome"], rows, left=5) if rows else "")


def windows(data: Data) -> str:
    """What the windows with the forecast on and off come to, by advisor: means in ms, and standstills."""
    rows = []
    for arm in [a for a in ordered(data.windows["policy"]) if not a.endswith(" off")]:
        on, off = (runs_of(data.windows, policy=p).set_index("seed")["mean_ms"] for p in (arm, arm + " off"))
        both = pd.concat([on, off], axis=1, keys=["on", "off"]).dropna()
        d = both["on"] - both["off"]
        slower, faster, chance = standstills(both["on"].to_numpy(float), both["off"].to_numpy(float))
        means = [with_interval(estimate(v, trim=trim), 2, sign=sign) for v, trim, sign in ((both["on"], 0, False), (both["off"], 0, False), (d, 0, True), (d, 0.2, True))]
        rows.append([arm, str(len(both)), str(len(on) - len(both)), *means, str(slower), str(faster), "–" if math.isnan(chance) else f"{chance:.2f}"])
    return table(["arm", "blocks", "thrown away", "on, ms", "off, ms", "on − off", "trimmed", "10 ms slower on", "10 ms slower off", "p"], rows)
