"""Makes the chapter with its figures, the appendix with all tables, and what other pages quote, from the raw data: python report.py --data ../data --root ../..

The texts are chapter.md, appendix.md and quotes.toml. What stands between {{ and }} there is a Python expression, and is replaced by its value. So no number
of them is typed."""

import argparse
import os
import re
import tomllib
from pathlib import Path

import checks
import figures
import power
import signs
import tables
from data import Data, read
from inference import comparisons, conclude, estimate, paired

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CHAPTER, APPENDIX, IMAGES = Path("docs/experiment.md"), Path("experiment/tables.md"), Path("docs/images/experiment")  # in the root

PILOT = 3  # pairs


class Chapter:
    """The names that the expressions of the text can use."""

    def __init__(self, data: Data, protocol: dict) -> None:
        """protocol is what hypotheses.toml has."""
        self.data = data
        self.protocol = protocol
        compared = [(h, comparisons(h, data.tiers, protocol["open"])) for h in protocol["hypothesis"]]
        self.compared = compared
        self.found = [(h, conclude(h, of)) for h, of in compared]
        self.checked = [(h, checks.checked(h, of)) for h, of in compared]
        self.early = signs.signs_of(data)
        self.drawn = figures.all_figures(data) | {"early-signs": signs.figure(self.early)}
        self.values: dict | None = None  # what names returns, once it has
        self.page = CHAPTER  # that is being written

    def names(self) -> dict:
        data = self.data
        pilot = data.real[data.real["seed"] <= PILOT]
        return {
            "virtual_runs": f"{len(data.virtual) + len(data.more):,}",
            "virtual_origin": origins([data.virtual_origin]),
            "real_thrown": len(data.thrown),
            "pilot_cells": f"{len(pilot):,}",
            "pilot_pairs": pilot["seed"].nunique(),
            "protocol_cells": f"{len(data.real) - len(pilot):,}",
            "protocol_windows": f"{len(data.windows):,}",
            "protocol_left": tables.left(self.compared),
            "algorithm_gain": self.algorithm_gain,
            "best_gain": lambda situation: tables.best_gain(data, situation),
            "advisers_short": tables.advisers(data, short=True),
            "real_lateness": f"{data.real['lateness'].max():.2f} ms" if len(data.real) else "–",
            "real_origins": origins([r["origin"] for r in data.records]),
            "hypotheses": tables.hypotheses(self.found),
            "good": self.good,
            "gain": self.gain,
            "against": self.against,
            "says": self.says,
            "when": self.when,
            "real_short": tables.real_short(data),
            "resources": tables.resources(data),
            "resources_steady": tables.resources(data, "steady"),
            "waits": self.waits(),
            "flood": tables.flood(data),
            "flood_stuck": tables.stuck(data),
            "effect": tables.effect(data),
            "cpu": tables.cpu(data),
            "cpu_gain": self.cpu_gain,
            "power": tables.power(power.rows(self.protocol["hypothesis"], self.protocol["open"], data.tiers)),
            "virtual_good": lambda algorithm: tables.virtual_good(data, algorithm),
            "virtual_gain": tables.virtual_gain(data),
            "virtual_measures": tables.virtual_measures(data),
            "virtual_best": tables.virtual_best(data),
            "bootstrap": tables.bootstrap(self.checked),
            "windows": tables.windows(data),
            "real_scenario": lambda scenario: tables.real_scenario(data, scenario),
            "real_differences": tables.real_differences(data),
            "advisers": tables.advisers(data),
            "gates": tables.gates(data),
            "agreement": tables.agreement(data),
            "early_signs": signs.of_seconds(self.early),
            "early_signs_all": signs.of_all_seconds(self.early),
            "early_signs_log": signs.of_five_minutes(self.early),
            "early_signs_quiet": signs.of_quiet(self.early),
            "early_signs_answer": signs.answer(self.early),
            "figure": self.figure,
        }

    def good(self, situation: str, policy: str, algorithm: str = "token_bucket") -> str:
        """The mean goodput of a policy of tier 2."""
        of = tables.runs_of(self.data.virtual, situation=situation, policy=policy, algorithm=algorithm)
        return f"{estimate(of['good']).mean:.1f}"

    def gain(self, situation: str, left: str, right: str, algorithm: str = "token_bucket", sign: bool = True) -> str:
        """A paired difference of tier 2; of what the protocol has open, that of its runs."""
        sides = [{"situation": situation, "policy": p, "algorithm": algorithm} for p in (left, right)]
        found = paired(self.data.more, "good", *sides)
        return tables.with_interval(found if found.n else paired(self.data.virtual, "good", *sides), sign=sign)

    def cpu_gain(self, left: str, right: str, real: bool = False) -> str:
        """A paired difference in the situation "cpu", of tier 2, or with real parts."""
        if self.data.explored is None or (runs := self.data.explored.real if real else self.data.explored.virtual).empty:
            return "–"
        sides = [{"situation": "cpu", "policy": p, "algorithm": "token_bucket"} for p in (left, right)]
        return tables.with_interval(paired(runs, "good", *sides), sign=True)

    def algorithm_gain(self, situation: str, left: str, right: str, policy: str = "tuned") -> str:
        """A paired difference between algorithms, of tier 2, without a sign."""
        sides = [{"situation": situation, "policy": policy, "algorithm": a} for a in (left, right)]
        return tables.with_interval(paired(self.data.virtual, "good", *sides))

    def against(self, name: str) -> str:
        return next(tables.against(h, found) for h, found in self.found if h["name"] == name)

    def says(self, name: str, *allowed: str) -> str:
        return next(tables.says(h, found, *allowed) for h, found in self.found if h["name"] == name)

    def when(self, name: str, **texts: str) -> str:
        """The text for the verdict of a hypothesis with real parts. KeyError if there is none for it."""
        hypothesis, found = next((h, f) for h, f in self.found if h["name"] == name)
        of = dict(tables.tiers_of(hypothesis, found))["with real parts"]
        return texts[tables.outcome(hypothesis, of or [])[0].replace(" ", "_")]

    def waits(self) -> str:
        """How long threads of proxies waited for a core in the cells that measured it, for each second in which they had one: the median, and the most."""
        of = self.data.real["wait"].dropna()
        return f"{of.median():.1f} s (at most {of.max():.1f} s)" if len(of) else "–"

    def figure(self, name: str, what: str) -> str:
        if self.drawn[name] is None:
            return f"*{what}: not run yet.*"
        return f"![{what}]({link(self.page, IMAGES)}/{name}.svg)"

    def text(self, template: str, page: Path) -> str:
        """The text of a page, whose path is given in the root."""
        self.page = page
        if self.values is None:
            self.values = self.names()
        names = self.values | {"chapter": link(page, CHAPTER), "tables": link(page, APPENDIX)}
        # Only expressions of the template, which is a part of this program.
        return re.sub(r"\{\{(.*?)\}\}", lambda m: str(eval(m[1].strip(), {"__builtins__": {}}, names)), template)

    def draw(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.svg"):
            old.unlink()
        for name, figure in self.drawn.items():
            if figure is not None:
                figures.save(figure, folder / f"{name}.svg")


def link(page: Path, to: Path) -> str:
    """The path by which a page names a file; both are given in the root."""
    return os.path.relpath(to, page.parent)


def write(chapter: Chapter, root: Path, pictures: bool = True) -> None:
    """Writes the chapter and the appendix into a root, and the pictures, and quotes into pages that are there: a quote is the line that begins as its template does."""
    for page, template in ((CHAPTER, "chapter.md"), (APPENDIX, "appendix.md")):
        (root / page).parent.mkdir(parents=True, exist_ok=True)
        (root / page).write_text(chapter.text((HERE / template).read_text(), page))
    for quote in tomllib.loads((HERE / "quotes.toml").read_text())["quote"]:
        page = root / quote["page"]
        if not page.exists():
            continue
        begins = quote["text"][: quote["text"].index("{{")]
        lines = page.read_text().split("\n")
        at = [i for i, line in enumerate(lines) if line.startswith(begins)]
        if len(at) != 1:
            raise SystemExit(f"{page}: {len(at)} lines begin with {begins!r}, want one")
        lines[at[0]] = chapter.text(quote["text"], Path(quote["page"])).strip()
        page.write_text("\n".join(lines))
    if pictures:
        chapter.draw(root / IMAGES)


def origins(of: list[dict]) -> str:
    """Where data come from, in words: the commits of each machine and its programs."""
    commits: dict[str, set[str]] = {}
    for one in filter(None, of):
        programs = "".join(f", {one[name]}" for name in ("redis", "prometheus", "traefik") if one.get(name))
        commits.setdefault(f"{one['go']} on {one['system']}, {one['cores']} cores of {one['cpu']}{programs}", set()).add(one["commit"])
    return "; ".join(f"commit{'s' * (len(found) > 1)} {', '.join(sorted(found))}, {machine}" for machine, found in sorted(commits.items())) or "–"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, default=HERE.parent / "data", help="the folder of the raw data")
    arguments.add_argument("--root", type=Path, default=ROOT, help="the folder in which the pages are written; the project")
    arguments.add_argument("--signs", type=Path, help="the folder of a full run's data: print whether the data have the same signs")
    given = arguments.parse_args()
    data, protocol = read(given.data), tomllib.loads((HERE.parent / "hypotheses.toml").read_text())
    write(Chapter(data, protocol), given.root)
    if given.signs:
        print(tables.signs(protocol["hypothesis"], data, read(given.signs)))


if __name__ == "__main__":
    main()
