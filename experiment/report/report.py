"""Makes the chapter with its tables and figures from the raw data: python report.py --data ../data --out ../../docs/experiment.md

The text is chapter.md. What stands between {{ and }} there is a Python expression, and is replaced by its value. So no number of the chapter is typed. A
line that begins with "{{figure" stands for a figure, which is written into the folder images/experiment beside the chapter."""

import argparse
import re
import tomllib
from pathlib import Path

import checks
import figures
import power
import tables
from data import Data, read
from inference import comparisons, conclude, estimate, paired

HERE = Path(__file__).parent


class Chapter:
    """The names that the expressions of the text can use."""

    def __init__(self, data: Data, protocol: dict) -> None:
        """protocol is what hypotheses.toml has."""
        self.data = data
        self.protocol = protocol
        compared = [(h, comparisons(h, data.tiers, protocol["open"])) for h in protocol["hypothesis"]]
        self.found = [(h, conclude(h, of)) for h, of in compared]
        self.checked = [(h, checks.checked(h, of)) for h, of in compared]
        self.drawn = figures.all_figures(data)

    def names(self) -> dict:
        data = self.data
        return {
            "virtual_runs": f"{len(data.virtual) + len(data.more):,}",
            "virtual_seeds": data.virtual["seed"].nunique(),
            "virtual_origin": origin(data.virtual_origin),
            "real_cells": f"{len(data.real):,}",
            "real_thrown": data.thrown,
            "real_pairs": int(data.real["seed"].nunique()),
            "real_lateness": f"{data.real['lateness'].max():.1f} ms" if len(data.real) else "–",
            "real_origins": "; ".join(sorted({origin(r["origin"]) for r in data.records})) or "–",
            "hypotheses": tables.hypotheses(self.found),
            "good": self.good,
            "gain": self.gain,
            "real_gain": self.real_gain,
            "against": self.against,
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
            "figure": self.figure,
        }

    def good(self, situation: str, policy: str, algorithm: str = "token_bucket") -> str:
        """The mean goodput of a policy of tier 2."""
        of = tables.runs_of(self.data.virtual, situation=situation, policy=policy, algorithm=algorithm)
        return f"{estimate(of['good']).mean:.1f}"

    def gain(self, situation: str, left: str, right: str, algorithm: str = "token_bucket") -> str:
        """A paired difference of tier 2; of what the protocol has open, that of its runs."""
        sides = [{"situation": situation, "policy": p, "algorithm": algorithm} for p in (left, right)]
        found = paired(self.data.more, "good", *sides)
        return tables.with_interval(found if found.n else paired(self.data.virtual, "good", *sides), sign=True)

    def real_gain(self, situation: str, left: str, right: str, algorithm: str = "token_bucket") -> str:
        sides = [{"situation": situation, "policy": p, "algorithm": algorithm} for p in (left, right)]
        return tables.with_interval(paired(self.data.real, "good", *sides), sign=True)

    def against(self, name: str) -> str:
        return next(tables.against(h, found) for h, found in self.found if h["name"] == name)

    def figure(self, name: str, what: str) -> str:
        if self.drawn[name] is None:
            return f"*{what}: not run yet.*"
        return f"![{what}](images/experiment/{name}.svg)"

    def text(self, template: str) -> str:
        names = self.names()
        # Only expressions of the template, which is a part of this program.
        return re.sub(r"\{\{(.*?)\}\}", lambda m: str(eval(m[1].strip(), {"__builtins__": {}}, names)), template)

    def draw(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.svg"):
            old.unlink()
        for name, figure in self.drawn.items():
            if figure is not None:
                figures.save(figure, folder / f"{name}.svg")


def summarize(chapter: Chapter, readme: Path) -> None:
    """Writes the summary into a README anew: the line that begins as its template does."""
    template = (HERE / "summary.md").read_text().strip()
    begins = template[: template.index("{{")]
    lines = readme.read_text().split("\n")
    at = [i for i, line in enumerate(lines) if line.startswith(begins)]
    if len(at) != 1:
        raise SystemExit(f"{readme}: {len(at)} lines begin with {begins!r}, want one")
    lines[at[0]] = chapter.text(template)
    readme.write_text("\n".join(lines))


def origin(of: dict) -> str:
    """Where data come from, in words."""
    if not of:
        return "–"
    servers = ", ".join(of[name] for name in ("redis", "prometheus", "traefik") if of.get(name))
    return f"commit {of['commit']}, {of['go']} on {of['system']}, {of['cores']} cores of {of['cpu']}" + (f", {servers}" if servers else "")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, default=HERE.parent / "data", help="the folder of the raw data")
    arguments.add_argument("--out", type=Path, default=HERE.parent.parent / "docs" / "experiment.md", help="the file of the chapter")
    arguments.add_argument("--readme", type=Path, help="a README whose summary is written anew, too")
    arguments.add_argument("--tables", action="store_true", help="write the chapter without its figures")
    given = arguments.parse_args()
    chapter = Chapter(read(given.data), tomllib.loads((HERE.parent / "hypotheses.toml").read_text()))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(chapter.text((HERE / "chapter.md").read_text()))
    if given.readme:
        summarize(chapter, given.readme)
    if not given.tables:
        chapter.draw(given.out.parent / "images" / "experiment")


if __name__ == "__main__":
    main()
