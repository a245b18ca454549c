"""Tests of the report: python -m unittest discover -s experiment/report."""

import math
import tempfile
import tomllib
import unittest
from pathlib import Path

import data
import figures
import inference
import numpy as np
import pandas as pd
import power
import report
import tables
from scipy import stats

HERE = Path(__file__).parent


def runs(**of: list) -> pd.DataFrame:
    """Runs of one situation and algorithm, by policy: the goodput of each seed."""
    rows = [
        {"situation": "bursts", "algorithm": "token_bucket", "policy": policy, "seed": seed, "good": float(good)}
        for policy, values in of.items()
        for seed, good in enumerate(values)
    ]
    return pd.DataFrame(rows)


class Intervals(unittest.TestCase):
    def test_an_interval_is_students(self):
        e = inference.estimate(pd.Series([80.0, 70.0, 60.0]))
        self.assertAlmostEqual(e.mean, 70)
        self.assertAlmostEqual(e.half, 4.302653 * 10 / math.sqrt(3), 4)

    def test_differences_are_paired(self):
        found = runs(guard=[99, 95, 97], static=[80, 70, 60])
        d = inference.paired(found, "good", {"policy": "guard"}, {"policy": "static"})
        self.assertAlmostEqual(d.mean, 27)
        self.assertAlmostEqual(d.half, 4.302653 * 9.165151 / math.sqrt(3), 4)

    def test_a_trimmed_mean_is_that_of_the_books(self):
        # The example of Wilcox, "Introduction to robust estimation and hypothesis testing", chapter 4.3: self-awareness data.
        e = inference.estimate(pd.Series([77, 87, 88, 114, 151, 210, 219, 246, 253, 262, 296, 299, 306, 376, 428, 515, 666, 1310, 2611]), trim=0.2)
        self.assertAlmostEqual(e.mean, 282.7, 1)
        self.assertAlmostEqual(e.half / stats.t.ppf(0.975, 12), 56.1, 1)

    def test_a_run_without_its_pair_does_not_count(self):
        found = runs(guard=[99, 95, 97], static=[80, 70])
        self.assertEqual(inference.paired(found, "good", {"policy": "guard"}, {"policy": "static"}).n, 2)


def protocol() -> dict:
    """What hypotheses.toml has."""
    return tomllib.loads((HERE.parent / "hypotheses.toml").read_text())


class Verdicts(unittest.TestCase):
    def judge(self, test, mean, half, margin=0.25, n=20, **more):
        return inference.judge(test, inference.Estimate(mean, half, n), margin, **more)[0]

    def test_each_test(self):
        for test, mean, half, want in [
            ("not_inferior", 0, 0.2, "confirmed"), ("not_inferior", -0.1, 0.2, "undecided"), ("not_inferior", -1, 0.2, "refuted"),
            ("superior", 1, 0.5, "confirmed"), ("superior", 1, 1.5, "undecided"), ("superior", -1, 0.5, "refuted"),
            ("inferior", -1, 0.5, "confirmed"), ("inferior", -1, 1.5, "undecided"), ("inferior", 1, 0.5, "refuted"),
            ("equivalent", 0, 0.2, "confirmed"), ("equivalent", 0.2, 0.2, "undecided"), ("equivalent", 1, 0.2, "refuted"),
            ("differ", 1, 0.2, "confirmed"), ("differ", 0.3, 0.2, "undecided"), ("differ", 0, 0.2, "refuted"),
        ]:  # fmt: skip
            self.assertEqual(self.judge(test, mean, half), want, (test, mean, half))

    def test_what_is_neither_may_be_equivalent_within_the_smallest_margin(self):
        for mean, half, want in [(0.1, 0.3, ("equivalent", 0.5)), (0.1, 0.5, ("equivalent", 1)), (-0.6, 1, ("equivalent", 2)), (0, 2.1, ("undecided", None)), (1, 0.5, ("confirmed", None))]:
            outcome, within = inference.judge("superior", inference.Estimate(mean, half, 20), 0, wider=[2, 0.5, 1])
            self.assertEqual((outcome, None if math.isnan(within) else within), want)

    def test_a_refutation_asks_for_the_wider_interval(self):
        strict = inference.Estimate(-1, 1.1, 20)
        self.assertEqual(self.judge("superior", -1, 0.5, strict=strict), "undecided")
        self.assertEqual(self.judge("superior", 1, 0.5, strict=strict), "confirmed")

    def test_two_pairs_decide_nothing(self):
        self.assertEqual(self.judge("superior", 10, 0.1, n=2, wider=[20]), "undecided")

    def test_a_verdict_asks_for_all_combinations_and_of_a_difference_for_one(self):
        def of(*says):
            return [inference.Finding("virtual", "", "", "", inference.Estimate(0, 0, 20), s) for s in says]

        for test, says, want in [
            ("superior", ["confirmed", "confirmed"], "confirmed"), ("superior", ["confirmed", "undecided"], "undecided"),
            ("superior", ["undecided", "refuted"], "refuted"), ("superior", ["confirmed", "equivalent"], "equivalent"),
            ("superior", ["undecided", "equivalent"], "undecided"),
            ("differ", ["refuted", "confirmed"], "confirmed"), ("differ", ["refuted", "refuted"], "refuted"), ("differ", ["refuted", "undecided"], "undecided"), ("differ", [], "not run"),
        ]:  # fmt: skip
            self.assertEqual(inference.verdict(test, of(*says)), want, (test, says))

    def test_hypotheses_name_what_is_there(self):
        found = runs(guard=[99, 95, 97], tuned=[80, 70, 60])
        for hypothesis in protocol()["hypothesis"]:
            hypothesis["look"] = [look for look in hypothesis["look"] if look["tier"] == "virtual"]
            findings = inference.decide(hypothesis, {"virtual": found})
            if hypothesis["name"] == "H2":
                self.assertEqual([f.outcome for f in findings], ["confirmed"])


class TheProtocol(unittest.TestCase):
    HYPOTHESIS = {"test": "superior", "measure": "good", "look": [{"tier": "real", "left": "guard", "right": "static", "situations": ["bursts"], "algorithms": ["token_bucket"]}]}
    OPEN = {"tier": "real", "situation": "bursts", "policies": ["guard", "static"], "algorithms": ["token_bucket"], "first": 3, "pairs": 4}

    def decide(self, guard, static):
        return inference.decide(self.HYPOTHESIS, {"real": runs(guard=guard, static=static)}, [self.OPEN])[0]

    def test_the_pilot_does_not_count_for_what_is_open(self):
        found = self.decide([99, 99, 99, 5, 6, 7, 8], [0, 0, 0, 7, 9, 8, 11])
        self.assertEqual((found.outcome, found.difference.n), ("refuted", 4))
        self.assertAlmostEqual(found.difference.mean, -2.25)

    def test_nothing_is_decided_before_all_pairs_are_there(self):
        guard, static = [9, 9, 9, 99, 98, 97, 99], [8, 8, 8, 1, 2, 3, 4]
        for n, want, pairs in [(7, "confirmed", 4), (6, "undecided", 3), (3, "undecided", 3)]:
            found = self.decide(guard[:n], static[:n])
            self.assertEqual((found.outcome, found.difference.n), (want, pairs))

    def test_its_numbers_are_what_the_pilot_asks_for(self):
        of = protocol()
        needed: dict[int, list[int]] = {}
        for r in power.rows(of["hypothesis"], of["open"], data.read(HERE.parent / "data").tiers):
            needed.setdefault(id(r.comparison.entry), []).append(r.needed)
        for entry in of["open"]:
            most = max(needed[id(entry)])
            if entry.get("capped"):
                self.assertGreater(most, entry["pairs"], entry)
            else:
                self.assertTrue(most <= entry["pairs"] <= 1.05 * most, (most, entry))


class Power(unittest.TestCase):
    def test_the_numbers_are_those_of_the_books(self):
        # Cohen, "Statistical power analysis for the behavioral sciences", 1988: a paired test of d = 0.5 at 5 % on both sides needs 44 pairs for 90 %.
        self.assertEqual(power.fewest(lambda n: power.power_to_find(n, 0.5, 1)), 44)
        self.assertAlmostEqual(power.upper_sd(1, 2), 2.117, 3)

    def test_simulated_runs_are_found_as_often_as_it_says(self):
        n, draws = 44, np.random.default_rng(38).normal(0.5, 1, (2000, 44))
        low = draws.mean(axis=1) - stats.t.ppf(0.975, n - 1) * draws.std(axis=1, ddof=1) / math.sqrt(n)
        self.assertAlmostEqual(float((low > 0).mean()), power.power_to_find(n, 0.5, 1), delta=3 * math.sqrt(0.09 / 2000))
        ends = np.abs(draws.mean(axis=1) - 0.5) + stats.t.ppf(0.975, n - 1) * draws.std(axis=1, ddof=1) / math.sqrt(n)
        self.assertAlmostEqual(float((ends < 0.6).mean()), power.power_for_equivalence(n, 0.6, 1), delta=3 * math.sqrt(0.09 / 2000))


class Measures(unittest.TestCase):
    def cell(self):
        lines = []
        for second in range(10):
            well = second < 3 or second > 6
            own = [100, 0, 0, 0, 0, 0] if well else [50, 30, 0, 0, 20, 0]
            lines.append({"second": second, "first": 100, "own": own, "others": [0, 100, 0, 0, 0, 0], "seen": {"limit_of_client": 300 if well else 200}})
        record = {
            "scenario": "abuse", "algorithm": "token_bucket", "arm": "static", "pair": 1, "sigma": 0, "event": 10, "over": 5,
            "legitimate": 1000, "good": 800, "own": {"answered": 800, "limited": 120, "left": 80}, "others": {"limited": 1000}, "lateness": 1.5,
            "times_of_own": {"answered": {"sum": 80.0, "counts": {"348": 800}}, "left": {"sum": 80.0, "counts": {"465": 80}}},
        }  # fmt: skip
        return record, data.table_of_seconds(lines)

    def test_of_a_cell(self):
        found = data.measures(*self.cell())
        self.assertAlmostEqual(found["good"], 80)
        self.assertAlmostEqual(found["rejected"], 100 * 1120 / 2000)
        self.assertAlmostEqual(found["of_excess"], 100 * 1120 / 400)
        self.assertEqual(found["abuse"], 0)
        self.assertEqual(found["recovery"], 2)
        self.assertAlmostEqual(found["deviation"], 40)
        self.assertAlmostEqual(found["lost"], 20)
        self.assertAlmostEqual(found["changes"], 2 * 360)
        self.assertAlmostEqual(found["mean_ms"], 160000 / 880)
        self.assertAlmostEqual(found["p95_ms"], 0.1 * 1.02**465.5)

    def test_a_scenario_that_is_never_over_has_no_recovery(self):
        record, of = self.cell()
        del record["over"]
        self.assertTrue(math.isnan(data.measures(record, of)["recovery"]))


class TheReport(unittest.TestCase):
    def test_numbers_have_a_real_minus_and_their_interval(self):
        self.assertEqual(tables.with_interval(inference.Estimate(-1.25, 0.5, 9), 2, sign=True), "−1.25 ± 0.50")
        self.assertEqual(tables.number(-0.01, 1, sign=True), "+0.0")
        self.assertEqual(tables.with_interval(inference.Estimate(3, math.nan, 1)), "3.0")
        self.assertEqual(tables.with_interval(inference.Estimate(math.nan, math.nan, 0)), "–")

    def test_the_chapter_is_made_without_any_data(self):
        with tempfile.TemporaryDirectory() as folder:
            chapter = report.Chapter(data.read(Path(folder)), protocol())
            self.assertIn("Not run yet", chapter.text((HERE / "chapter.md").read_text()))

    def test_a_figure_is_the_same_each_time(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.svg", "b.svg"):
                figures.save(figures.heat(pd.DataFrame([[1.0, -30.0]]).to_numpy(), ["steady"], ["a", "b"], "points"), Path(folder, name))
            self.assertEqual(Path(folder, "a.svg").read_text(), Path(folder, "b.svg").read_text())

    def test_the_data_are_at_most_twenty_megabytes(self):
        size = sum(f.stat().st_size for f in (HERE.parent / "data").rglob("*") if f.is_file())
        self.assertLessEqual(size, 20_000_000)


if __name__ == "__main__":
    unittest.main()
