"""The figures of the chapter, as SVG that is the same each time."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from data import CAPACITY, GROWTH, OUTCOMES, SHORTEST, Data
from inference import estimate
from matplotlib.figure import Figure
from tables import arm_order, ordered, runs_of

plt.rcParams.update({"svg.hashsalt": "weir", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})


# What browsers draw otherwise where the reader prefers a dark page. The ground stays the picture's own, so that it is readable on a page whose colours are another choice.
DARK = {
    "#ffffff": "#151b23",
    "#000000": "#e6edf3",
    "#4c4c4c": "#c4ccd4",
    "#8c8c8c": "#98a1ab",
    "#b0b0b0": "#3d4650",
    "#bfbfbf": "#4a5460",
    "#cccccc": "#3d4650",
    "#0072b2": "#56b4e9",
    "#d55e00": "#f0813a",
}


def adapted(picture: str) -> str:
    """The text of an SVG picture of matplotlib, with the style by which it follows the reader's colour scheme. Its own styles are attributes, which only !important overrides."""
    rules = [f'[style*="{what}: {light}"] {{ {what}: {dark} !important }}' for light, dark in DARK.items() for what in ("fill", "stroke") if f"{what}: {light}" in picture]
    rules.append(f"text {{ fill: {DARK['#000000']} }}")  # it has no colour of its own
    return picture.replace("</style>", "\n@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}</style>", 1)


def save(figure: Figure, name: Path) -> None:
    figure.savefig(name, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    # Lines without blanks at the end, as all texts of the project.
    name.write_text(adapted("\n".join(line.rstrip() for line in name.read_text().splitlines()) + "\n"))


# Colours that differ in grey, too (of Okabe and Ito's palette), each with a mark and a line of its own.
LOOKS = {
    "none": ("#999999", "x", ":"),
    "static": ("#d55e00", "s", "--"),
    "tuned": ("#d55e00", "s", "--"),
    "guard": ("#0072b2", "o", "-"),
    "study": ("#e69f00", "^", "-."),
    "guard+go": ("#009e73", "D", (0, (3, 1, 1, 1))),
    "guard+prophet": ("#cc79a7", "v", (0, (1, 1))),
}
NAMES = {"none": "no limits", "static": "static limits", "tuned": "tuned static limits", "guard": "guard", "study": "the study's policy"}


def answer(data: Data) -> Figure | None:
    """Goodput of static limits, the study's policy and the guard with the token bucket, with intervals: of each situation, in both tiers, on one axis."""
    tiers = [("on a virtual clock", data.virtual, ("none", "tuned", "study", "guard")), ("with real parts", data.real, ("static", "study", "guard"))]
    situations = [ordered(runs_of(runs, algorithm="token_bucket")["situation"]) if len(runs) else [] for _, runs, _ in tiers]
    if not all(situations):
        return None
    figure, all_axes = plt.subplots(2, 1, figsize=(7.5, 1.4 + 0.26 * sum(map(len, situations))), sharex=True, height_ratios=[len(s) for s in situations])
    for axes, (tier, runs, policies), names in zip(all_axes, tiers, situations, strict=True):
        for i, policy in enumerate(policies):
            found = [estimate(runs_of(runs, situation=s, policy=policy, algorithm="" if policy == "none" else "token_bucket")["good"]) for s in names]
            colour, mark, _ = LOOKS[policy]
            at = np.arange(len(names)) + 0.14 * (i - (len(policies) - 1) / 2)
            half = [0 if np.isnan(e.half) else round(e.half, 3) for e in found]
            axes.errorbar([round(e.mean, 3) for e in found], at, xerr=half, fmt=mark, color=colour, ms=4.5, lw=0.8, label=NAMES[policy])
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_title(tier, loc="left", fontsize=9)
        axes.grid(axis="x", lw=0.3)
    figure.legend(*all_axes[0].get_legend_handles_labels(), fontsize=8, ncols=4, loc="outside upper center")
    all_axes[1].set_xlabel("goodput: requests of legitimate clients that are answered within a second, %")
    all_axes[1].set_xlim(-2, 102)
    return figure


SHOWN = ("bursts", "abuse", "redis off", "slow")


def over_time(data: Data, arms: tuple[str, ...] = ("static", "guard"), algorithm: str = "token_bucket") -> Figure | None:
    """What was sent and what was good in each second, on an average over the runs: a row for each scenario, a column for each arm, all with the same axes."""
    found = {(s, arm): [of for (scenario, a, p, _), of in data.seconds.items() if (scenario, a, p) == (s, algorithm, arm)] for s in SHOWN for arm in arms}
    if not all(found.values()):
        return None
    figure, all_axes = plt.subplots(len(SHOWN), len(arms), figsize=(7.5, 0.6 + 1.5 * len(SHOWN)), sharex=True, sharey=True, squeeze=False)
    for (scenario, arm), axes in zip(found, all_axes.flat, strict=True):
        runs = [of[(of.index >= -10) & (of.index < 60)] for of in found[scenario, arm]]
        own = sum(of[[f"own_{o}" for o in OUTCOMES]].sum(axis=1) for of in runs) / len(runs)
        sent = own + sum(of[[f"others_{o}" for o in OUTCOMES]].sum(axis=1) for of in runs) / len(runs)
        good = sum(of["own_answered"] for of in runs) / len(runs)
        axes.plot(sent.index, sent.round(3), color="#999999", lw=0.9, ls=":", label="sent by all clients")
        axes.plot(own.index, own.round(3), color="#d55e00", lw=0.9, ls="--", label="sent by legitimate clients")
        axes.plot(good.index, good.round(3), color="#0072b2", lw=1.5, label="of these, answered within a second")
        axes.axhline(CAPACITY, color="black", lw=0.6, label="what the service can do")
        axes.set_title(f"{scenario}: {NAMES[arm]}", loc="left", fontsize=8)
    for axes in all_axes[:, 0]:
        axes.set_ylabel("requests a second", fontsize=8)
    for axes in all_axes[-1]:
        axes.set_xlabel("seconds of the event")
    all_axes[0, 0].set_ylim(0, None)
    figure.legend(*all_axes[0, 0].get_legend_handles_labels(), fontsize=8, ncols=2, loc="outside upper center")
    return figure


def latencies(data: Data, scenarios: tuple[str, ...] = SHOWN, algorithm: str = "token_bucket") -> Figure | None:
    """The distributions of response times, as how many were longer: small multiples with the same axes."""
    by_scenario: dict[str, dict[str, dict[int, int]]] = {s: {} for s in scenarios}
    for record in data.records:
        if record["algorithm"] == algorithm and record["scenario"] in by_scenario and record["arm"] in ("static", "study", "guard"):
            counts = by_scenario[record["scenario"]].setdefault(record["arm"], {})
            for outcome in ("answered", "left"):
                for bucket, n in record["times_of_own"].get(outcome, {"counts": {}})["counts"].items():
                    counts[int(bucket)] = counts.get(int(bucket), 0) + n
    if not all(by_scenario.values()):
        return None
    figure, all_axes = plt.subplots(2, 2, figsize=(7.5, 4.4), sharex=True, sharey=True)
    for axes, (scenario, by_arm) in zip(all_axes.flat, by_scenario.items(), strict=True):
        for arm in sorted(by_arm, key=arm_order):
            buckets = sorted(by_arm[arm])
            counts = np.array([by_arm[arm][b] for b in buckets])
            longer = 1 - np.cumsum(counts) / counts.sum()
            colour, _, line = LOOKS[arm]
            axes.step([round(SHORTEST * GROWTH ** (b + 1), 4) for b in buckets], 100 * longer.round(6), where="post", lw=1.2, ls=line, label=NAMES[arm], color=colour)
        axes.set_title(scenario, loc="left", fontsize=9)
    axes.set_yscale("log")
    axes.set_ylim(0.1, 100)
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set_xlim(0, None)
    for axes in all_axes[1]:
        axes.set_xlabel("response time, ms")
    for axes in all_axes[:, 0]:
        axes.set_ylabel("longer than that, %")
    handles, labels = max((axes.get_legend_handles_labels() for axes in all_axes.flat), key=lambda of: len(of[1]))
    figure.legend(handles, labels, fontsize=8, ncols=3, loc="outside upper center")
    return figure


def band(data: Data, scenario: str = "world cup", arm: str = "guard+go") -> Figure | None:
    """The forecast with its band, the demand that it is of, and the limit in force, in the first run."""
    found = [of for (s, _, p, _), of in sorted(data.seconds.items()) if (s, p) == (scenario, arm) and "forecast_upper" in of]
    if not found:
        return None
    of = found[0]
    figure, axes = plt.subplots(figsize=(7, 2.8))
    axes.fill_between(of.index, of["forecast_lower"].round(3), of["forecast_upper"].round(3), color="#0072b2", alpha=0.2, lw=0, label="band of the forecast")
    axes.plot(of.index, of["forecast_mean"].round(3), color="#0072b2", lw=1, ls="--", label="forecast")
    axes.plot(of.index, of["demand"].round(3), color="black", lw=1, label="demand")
    axes.plot(of.index, of["limit_of_client"].round(3), color="#d55e00", lw=1, ls="-.", label="limit in force")
    axes.set_xlabel("seconds of the event")
    axes.set_ylabel("requests of a key in 10 s")
    axes.set_ylim(0, None)
    axes.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def all_figures(data: Data) -> dict[str, Figure | None]:
    """By the name of its file; None where there are no data yet."""
    return {"answer": answer(data), "over-time": over_time(data), "latency": latencies(data), "forecast-band": band(data)}
