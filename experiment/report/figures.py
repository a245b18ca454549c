"""The figures of the chapter, as SVG that is the same each time."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from data import CAPACITY, GROWTH, OUTCOMES, SHORTEST, Data
from inference import estimate, paired
from matplotlib.figure import Figure
from tables import ARMS, POLICIES, algorithms_of, arm_order, number, ordered, runs_of

plt.rcParams.update({"svg.hashsalt": "weir", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})


def save(figure: Figure, name: Path) -> None:
    figure.savefig(name, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    # Lines without blanks at the end, as all texts of the project.
    name.write_text("\n".join(line.rstrip() for line in name.read_text().splitlines()) + "\n")


def heat(values: np.ndarray, rows: list[str], columns: list[str], label: str) -> Figure:
    figure, axes = plt.subplots(figsize=(1.5 + 1.3 * len(columns), 1 + 0.32 * len(rows)))
    image = axes.imshow(values, cmap="RdBu", vmin=-40, vmax=40, aspect="auto")
    axes.set_xticks(range(len(columns)), [c.replace("_", " ") for c in columns], rotation=20, ha="right")
    axes.set_yticks(range(len(rows)), rows)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if not np.isnan(value):
                axes.text(j, i, number(value, 1, sign=True), ha="center", va="center", color="white" if abs(value) > 25 else "black")
    figure.colorbar(image, label=label)
    return figure


def virtual_heat(data: Data) -> Figure | None:
    """guard − tuned."""
    runs = data.virtual
    rows, columns = ordered(runs["situation"]), algorithms_of(runs)
    if not rows:
        return None
    values = [[paired(runs, "good", *({"situation": s, "policy": p, "algorithm": a} for p in ("guard", "tuned"))).mean for a in columns] for s in rows]
    return heat(np.round(values, 3), rows, columns, "goodput, points: guard − tuned")


def virtual_policies(data: Data) -> Figure | None:
    """Goodput of the policies, with intervals."""
    situations = ordered(data.virtual["situation"])
    if not situations:
        return None
    figure, axes = plt.subplots(figsize=(7.5, 5))
    height = 0.8 / len(POLICIES)
    for i, (policy, name) in enumerate(POLICIES.items()):
        found = [estimate(runs_of(data.virtual, situation=s, policy=policy, algorithm="" if policy == "none" else "token_bucket")["good"]) for s in situations]
        at = np.arange(len(situations)) + (i - len(POLICIES) / 2 + 0.5) * height
        axes.barh(at, [round(e.mean, 3) for e in found], height, xerr=[round(e.half, 3) if e.n > 1 else 0 for e in found], label=name, color=f"C{i}", error_kw={"lw": 0.8})
    axes.set_yticks(range(len(situations)), situations)
    axes.invert_yaxis()
    axes.set_xlabel("goodput, % (mean and its 95 % interval; token bucket)")
    axes.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def real_heat(data: Data) -> Figure | None:
    """guard − static."""
    real = data.real
    rows, columns = sorted(set(real["situation"])), sorted(set(real["algorithm"]))
    if not rows:
        return None
    values = [[paired(real, "good", *({"situation": s, "policy": p, "algorithm": a} for p in ("guard", "static"))).mean for a in columns] for s in rows]
    return heat(np.round(values, 3), rows, columns, "goodput, points: guard − static")


def over_time(data: Data, scenario: str, arms: tuple[str, ...] = ("static", "guard"), algorithm: str = "token_bucket") -> Figure | None:
    """What was sent, what was good, and the guard's limit, in each second, on an average over the runs."""
    found = {arm: [of for (s, a, p, _), of in data.seconds.items() if (s, a, p) == (scenario, algorithm, arm)] for arm in arms}
    if not all(found.values()):
        return None
    figure, all_axes = plt.subplots(len(arms), 1, figsize=(7.5, 2.2 * len(arms)), sharex=True)
    for axes, (arm, runs) in zip(all_axes, found.items(), strict=True):
        own = sum(of[[f"own_{o}" for o in OUTCOMES]].sum(axis=1) for of in runs) / len(runs)
        sent = own + sum(of[[f"others_{o}" for o in OUTCOMES]].sum(axis=1) for of in runs) / len(runs)
        good = sum(of["own_answered"] for of in runs) / len(runs)
        axes.plot(sent.index, sent.round(3), color="C7", lw=1, label="sent by all")
        axes.plot(own.index, own.round(3), color="C0", lw=1, label="sent by legitimate clients")
        axes.plot(good.index, good.round(3), color="C2", lw=1.5, label="of these, good")
        axes.axhline(CAPACITY, color="C3", lw=0.8, ls="--", label="what B can do")
        limits = [of["guard_limit"] for of in runs if "guard_limit" in of]
        if limits:
            beside = axes.twinx()
            limit = sum(limits) / len(limits)
            beside.plot(limit.index, limit.round(3), color="C1", lw=1, label="limit of a guard")
            beside.set_ylabel("under way", color="C1")
            beside.set_ylim(0, 50)
        axes.set_title(arm, loc="left", fontsize=9)
        axes.set_ylabel("requests a second")
    all_axes[-1].set_xlabel("seconds of the event")
    all_axes[0].legend(fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.1))
    return figure


def latencies(data: Data, scenario: str, algorithm: str = "token_bucket") -> Figure | None:
    """The distribution of response times: how many were longer."""
    by_arm: dict[str, dict[int, int]] = {}
    for record in data.records:
        if (record["scenario"], record["algorithm"]) == (scenario, algorithm) and record["arm"] in ARMS:
            counts = by_arm.setdefault(record["arm"], {})
            for outcome in ("answered", "left"):
                for bucket, n in record["times_of_own"].get(outcome, {"counts": {}})["counts"].items():
                    counts[int(bucket)] = counts.get(int(bucket), 0) + n
    if not by_arm:
        return None
    figure, axes = plt.subplots(figsize=(6, 3.2))
    for arm in sorted(by_arm, key=arm_order):
        buckets = sorted(by_arm[arm])
        counts = np.array([by_arm[arm][b] for b in buckets])
        longer = 1 - np.cumsum(counts) / counts.sum()
        axes.step([round(SHORTEST * GROWTH ** (b + 1), 4) for b in buckets], 100 * longer.round(6), where="post", lw=1, label=arm, color=f"C{ARMS.index(arm)}")
    axes.set_yscale("log")
    axes.set_ylim(0.1, 100)
    axes.set_xlabel("response time, ms")
    axes.set_ylabel("longer than that, %")
    axes.legend(fontsize=8)
    return figure


def band(data: Data, scenario: str = "world cup", arm: str = "guard+go") -> Figure | None:
    """The forecast with its band, the demand that it is of, and the limit in force, in the first run."""
    found = [of for (s, _, p, _), of in sorted(data.seconds.items()) if (s, p) == (scenario, arm) and "forecast_upper" in of]
    if not found:
        return None
    of = found[0]
    figure, axes = plt.subplots(figsize=(7, 2.8))
    axes.fill_between(of.index, of["forecast_lower"].round(3), of["forecast_upper"].round(3), color="C0", alpha=0.2, lw=0, label="band")
    axes.plot(of.index, of["forecast_mean"].round(3), color="C0", lw=1, label="forecast")
    axes.plot(of.index, of["demand"].round(3), color="C2", lw=1, label="demand")
    axes.plot(of.index, of["limit_of_client"].round(3), color="C1", lw=1, label="limit in force")
    axes.set_xlabel("seconds of the event")
    axes.set_ylabel("requests of a key in 10 s")
    axes.legend(fontsize=8, ncols=4)
    return figure


def all_figures(data: Data) -> dict[str, Figure | None]:
    figures = {"virtual-heat": virtual_heat(data), "virtual-policies": virtual_policies(data), "real-heat": real_heat(data), "forecast-band": band(data)}
    for scenario in ("bursts", "abuse", "redis off", "slow"):
        figures["over-time-" + scenario.replace(" ", "-")] = over_time(data, scenario)
        figures["latency-" + scenario.replace(" ", "-")] = latencies(data, scenario)
    return figures
