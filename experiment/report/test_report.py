"""Tests of the report: python -m unittest discover -s experiment/report."""

import math
import tempfile
import tomllib
import unittest
from pathlib import Path

import data
import figures
import inference
import pandas as pd
import report
import tables

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

    def test_a_run_without_its_pair_does_not_count(self):
        found = runs(guard=[99, 95, 97], static=[80, 70])
        self.assertEqual(inference.paired(found, "good", {"policy": "guard"}, {"policy": "static"}).n, 2)


class Verdicts(unittest.TestCase):
    def judge(self, test, mean, half, margin=0.25, n=20):
        return inference.judge(test, inference.Estimate(mean, half, n), margin)

    def test_each_test(self):
        for test, mean, half, want in [
            ("not_inferior", 0, 0.2, True), ("not_inferior", -0.1, 0.2, None), ("not_inferior", -1, 0.2, False),
            ("superior", 1, 0.5, True), ("superior", 1, 1.5, None), ("superior", -1, 0.5, False),
            ("inferior", -1, 0.5, True), ("inferior", -1, 1.5, None), ("inferior", 1, 0.5, False),
            ("equivalent", 0, 0.2, True), ("equivalent", 0.2, 0.2, None), ("equivalent", 1, 0.2, False),
            ("differ", 1, 0.2, True), ("differ", 0.3, 0.2, None), ("differ", 0, 0.2, False),
        ]:  # fmt: skip
            self.assertIs(self.judge(test, mean, half), want, (test, mean, half))

    def test_two_pairs_decide_nothing(self):
        self.assertIsNone(self.judge("superior", 10, 0.1, n=2))

    def test_a_verdict_asks_for_all_combinations_and_of_a_difference_for_one(self):
        def of(*says):
            return [inference.Finding("virtual", "", "", "", inference.Estimate(0, 0, 20), s) for s in says]

        self.assertEqual(inference.verdict("superior", of(True, True)), "supported")
        self.assertEqual(inference.verdict("superior", of(True, None)), "undecided")
        self.assertEqual(inference.verdict("superior", of(True, False)), "refuted")
        self.assertEqual(inference.verdict("differ", of(False, True)), "supported")
        self.assertEqual(inference.verdict("differ", of(False, False)), "refuted")
        self.assertEqual(inference.verdict("differ", []), "not run")

    def test_hypotheses_name_what_is_there(self):
        found = runs(guard=[99, 95, 97], tuned=[80, 70, 60])
        for hypothesis in tomllib.loads((HERE.parent / "hypotheses.toml").read_text())["hypothesis"]:
            hypothesis["look"] = [look for look in hypothesis["look"] if look["tier"] == "virtual"]
            findings = inference.decide(hypothesis, {"virtual": found})
            if hypothesis["name"] == "H2":
                self.assertEqual([f.supports for f in findings], [True])


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
            chapter = report.Chapter(data.read(Path(folder)), tomllib.loads((HERE.parent / "hypotheses.toml").read_text())["hypothesis"])
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
