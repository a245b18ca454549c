"""Tests of the early signs: python -m unittest discover -s experiment/report."""

import math
import tempfile
import unittest
from pathlib import Path

import data
import figures
import numpy as np
import pandas as pd
import signs
from scipy import stats

PAIRS = 8


def cell(scenario: str, pair: int, bad_from: int | None, sign: int = 0, arm: str = "static") -> tuple[dict, pd.DataFrame]:
    """A cell of 60 seconds of which all is chance but the spell of ten bad seconds, and what is under way: so many seconds before the spell it begins to be three times
    as much."""
    draw = np.random.default_rng([pair, len(scenario)])
    lines = []
    for second in range(-15, 60):
        sent, under_way = int(draw.poisson(100)), int(draw.poisson(12))
        bad = bad_from is not None and bad_from <= second < bad_from + 10
        if bad_from is not None and bad_from - sign <= second < bad_from + 10:
            under_way *= 3
        own = [sent // 2, 0, 0, 0, sent - sent // 2, 0] if bad else [sent, 0, 0, 0, 0, 0]
        lines.append({"second": second, "first": sent, "own": own, "others": [0] * 6, "seen": {"under_way": under_way}})
    return {"scenario": scenario, "algorithm": "token_bucket", "arm": arm, "pair": pair, "event": 60}, data.table_of_seconds(lines)


def data_of(cells: list[tuple[dict, pd.DataFrame]]) -> data.Data:
    nothing = pd.DataFrame()
    seconds = {(r["scenario"], r["algorithm"], r["arm"], r["pair"]): of for r, of in cells}
    return data.Data(nothing, {}, nothing, seconds, 0, [r for r, _ in cells], nothing, nothing)


def planted(sign: int, scenario: str = "slow", bad_from: int = 20) -> data.Data:
    """Cells of a scenario with a sign so many seconds before the spell, and of quiet operation."""
    return data_of([c for pair in range(1, PAIRS + 1) for c in (cell(scenario, pair, bad_from, sign), cell("steady", pair, None))])


def row(of: pd.DataFrame, signal: str, form: str = "level") -> pd.Series:
    return of[(of["signal"] == signal) & (of["form"] == form)].iloc[0]


class Curves(unittest.TestCase):
    def test_the_area_is_that_of_mann_and_whitney_and_under_the_curve(self):
        draw = np.random.default_rng(1)
        before, quiet = draw.integers(0, 9, 30).astype(float), draw.integers(0, 7, 200).astype(float)
        found = signs.area({("", 1): (before[:10], quiet[:150]), ("", 2): (before[10:], quiet[150:])})
        self.assertAlmostEqual(found.mean, stats.mannwhitneyu(before, quiet).statistic / 6000)
        false, hits = signs.roc(before, quiet)
        self.assertAlmostEqual(found.mean, np.trapezoid(hits, false))
        self.assertEqual((false[0], hits[0], false[-1], hits[-1]), (0, 0, 1, 1))

    def test_cells_of_the_same_requests_add_nothing(self):
        draw = np.random.default_rng(2)
        groups = {("", pair): (draw.normal(0.5, 1, 2), draw.normal(0, 1, 30)) for pair in range(5)}
        again = {key: tuple(np.tile(v, 3) for v in values) for key, values in groups.items()}
        self.assertAlmostEqual(signs.area(groups).half, signs.area(again).half)
        self.assertEqual(signs.area(again).n, 5)

    def test_a_signal_that_never_changes_has_no_area_and_one_pair_no_interval(self):
        self.assertTrue(math.isnan(signs.area({("", 1): (np.ones(3), np.ones(9))}).mean))
        self.assertTrue(math.isnan(signs.area({}).mean))
        one = signs.area({("", 1): (np.array([1.0, 2.0]), np.array([0.0, 1.0]))})
        self.assertEqual((one.mean, math.isnan(one.half)), (0.875, True))

    def test_where_there_is_no_sign_few_intervals_say_so(self):
        # An interval of 95 % errs on a side once in forty. More than 12 of 200 then have a chance of one in 250.
        for pairs in (3, 10):
            draw, found = np.random.default_rng(pairs), []
            for _ in range(200):
                level = draw.normal(0, 0.5, pairs)  # of a pair: its cells are alike
                groups = {("slow", p): (level[p] + draw.normal(0, 1, 3), np.empty(0)) for p in range(pairs)}
                groups |= {("steady", p): (np.empty(0), draw.normal(0, 0.5) + draw.normal(0, 1, 60)) for p in range(pairs)}
                found.append(signs.area(groups))
            self.assertLessEqual(sum(a.low > 0.5 for a in found), 12, pairs)
            self.assertLessEqual(sum(a.high < 0.5 for a in found), 12, pairs)


class FalseAlarms(unittest.TestCase):
    SERIES = np.array([0, 5, 0, 5, 0, 0, 0, 5, math.nan, 6, 0, 0, 0, 0, 9.0])

    def test_they_are_counted_once_for_what_is_close_together(self):
        for threshold, apart, want in [(4, 2, 3), (4, 1, 5), (4, 4, 2), (4, 9, 1), (5, 2, 2), (6, 2, 1), (9, 2, 0), (-1, 2, 1)]:
            self.assertEqual(signs.alarms(self.SERIES, threshold, apart), want, (threshold, apart))

    def test_a_threshold_has_so_many_at_most(self):
        for most, want in [(0, 9), (1, 6), (2, 5), (3, 0)]:
            self.assertEqual(signs.threshold_for([self.SERIES], most, 2), want, most)
        self.assertEqual(signs.threshold_for([self.SERIES, self.SERIES], 2, 2), 6)
        self.assertEqual(signs.threshold_for([], 2, 2), math.inf)

    def test_a_lead_is_that_of_the_first_alarm_before_the_event(self):
        values = np.array([9, 0, 0, 7, 0, 7, 7, 0.0])
        for event, threshold, want in [(7, 5, 4), (7, 8, 0), (5, 5, 5), (6, 5, 3), (3, 5, 3), (0, 5, 0)]:
            self.assertEqual(signs.lead_of(values, event, threshold, 5), want, (event, threshold))


class Seconds(unittest.TestCase):
    def test_a_spell_begins_where_clients_are_answered_badly_for_long(self):
        answered = np.array([100, 80, 100, 100, 95, 85, 80, 92, 70, 95, 95, 89, 100, 100, 100, 80.0])
        self.assertEqual(list(np.flatnonzero(signs.spells(np.full(16, 100.0), answered))), [5, 6, 7, 8, 9, 10, 11])

    def test_nothing_is_known_before_it_can_be(self):
        _, of = cell("slow", 1, 20)
        seconds = np.arange(-15, 60)
        known = signs.known(of, seconds)
        of.loc[20:, :] = of.loc[20:, :] + 7
        later = signs.known(of, seconds)
        for name, first in [("sent", 21), ("under way", 20), (signs.OUTCOME, 22)]:
            differ = np.flatnonzero(~np.isclose(known[name], later[name], equal_nan=True))
            self.assertEqual(seconds[differ[0]] >= first, True, name)

    def test_a_planted_sign_is_found_with_its_lead(self):
        found = signs.leads_of_cells(signs.cells_of(planted(4)))
        r = row(found, "under way")
        self.assertEqual((r["pairs"], r["events"], r["after"], r["warned"], r["lead"]), (PAIRS, PAIRS, 20, 1, 4))
        self.assertGreater(r["auc_1"], 0.98)
        self.assertGreater(r["auc_2"] - r["half_2"], 0.9)
        self.assertLess(abs(r["auc_5"] - 0.5), r["half_5"])
        self.assertLessEqual(r["alarms"], r["minutes"] / 10)
        self.assertAlmostEqual(r["minutes"], PAIRS * 70 / 60)
        told = signs.tells(found)
        self.assertEqual(set(told["signal"]), {"under way", "time in B"})
        self.assertIn("*slow*, static: the level of *under way*, 4 s before", signs.of_slopes(found))

    def test_cells_of_a_pair_are_one_cluster(self):
        cells = []
        for algorithm in ("fixed_window", "token_bucket"):
            for record, of in (cell("slow", 1, 20), cell("slow", 2, 20), cell("steady", 1, None)):
                cells.append((record | {"algorithm": algorithm}, of))
        groups = signs.groups_of(signs.cells_of(data_of(cells)), "slow", ("sent", "level"), 2)
        self.assertEqual({key: (len(a), len(b)) for key, (a, b) in groups.items()}, {("slow", 1): (2, 40), ("slow", 2): (2, 40), ("steady", 1): (0, 140)})

    def test_before_a_step_there_is_none(self):
        found = signs.leads_of_cells(signs.cells_of(planted(0, "bursts", 0)))
        for signal in ("sent", "under way", "time in B"):
            r = row(found, signal)
            for lead in signs.LEADS:
                self.assertLess(abs(r[f"auc_{lead}"] - 0.5), r[f"half_{lead}"], (signal, lead))
            self.assertLess(r["warned"], 0.5)
        self.assertTrue(signs.tells(found).empty)
        self.assertIn("of 6 combinations of scenario, arm and signal none is a sign", signs.of_steps(found))

    def test_an_arm_with_an_advisor_has_what_the_advisor_says_alone(self):
        record, of = cell("slow", 1, 20, arm="guard+go")
        found = signs.leads_of_cells(signs.cells_of(data_of([(record, of.assign(demand=3.0))])))
        self.assertEqual(set(found["signal"]), set(signs.SIGNALS["guard+go"]))
        self.assertTrue(found["auc_1"].isna().all())


def log(ramp: int, days: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Demand with a season of a day, noise, and a burst of an hour at some time of most days, before which it climbs for so many steps; and where bursts begin."""
    draw = np.random.default_rng(3)
    n = days * signs.DAY
    demand = 1000 * (1 + 0.3 * np.sin(2 * np.pi * np.arange(n) / signs.DAY)) * draw.lognormal(0, 0.01, n)
    at = np.array([day * signs.DAY + int(draw.integers(20, 260)) for day in range(1, days)])
    for b in at:
        demand[b : b + 12] *= 2.2
        demand[b - ramp : b] *= np.linspace(1.1, 1.3, ramp)
    return demand, at


class FiveMinutes(unittest.TestCase):
    def test_a_burst_is_where_demand_is_far_above_the_hour_before(self):
        demand, at = log(0)
        self.assertEqual(list(signs.bursts_of(demand)), list(at))
        demand[at[3] - 5] = math.nan
        self.assertEqual(list(signs.bursts_of(demand)), list(at))

    def test_what_is_in_a_burst_is_neither_before_one_nor_quiet(self):
        ahead = signs.steps_ahead(60, np.array([20, 40]))
        self.assertEqual([int(ahead[i]) for i in (0, 19, 20, 31, 32, 39, 40, 51)], [20, 1, 0, 0, 8, 1, 0, 0])
        self.assertGreater(ahead[52], signs.HOUR)

    def test_bursts_at_this_time_of_day_are_counted(self):
        demand = np.full(9 * signs.DAY, 100.0)
        at = np.array([day * signs.DAY + 100 for day in (1, 2, 5, 7)])
        found = signs.signals_of_log(demand, at)[f"time of day: bursts in {signs.HISTORY} days"]
        self.assertEqual([int(found[8 * signs.DAY + i]) for i in (87, 88, 99, 100)], [0, 4, 4, 0])

    def test_nothing_of_the_future_is_in_a_signal(self):
        demand, at = log(2)
        now = int(at[-5]) + 2
        for change in (0.1, 10):
            other = np.concatenate([demand[: now + 1], change * demand[now + 1 :]])
            for (name, a), b in zip(signs.signals_of_log(demand, signs.bursts_of(demand)).items(), signs.signals_of_log(other, signs.bursts_of(other)).values(), strict=True):
                self.assertTrue(np.array_equal(a[: now + 1], b[: now + 1], equal_nan=True), name)

    def test_a_planted_climb_is_found_and_none_where_there_is_none(self):
        found, none = (signs.leads_of_log(log(ramp)[0]).set_index("signal") for ramp in (3, 0))
        slope = found.loc["slope over 15 minutes"]
        self.assertGreater(slope["auc_15"] - slope["half_15"], 0.9)
        self.assertEqual((slope["bursts"], slope["days"], slope["warned"], slope["lead"]), (15, 14, 1, 15))
        for name in ("slope over 15 minutes", "slope over 30 minutes"):
            self.assertLess(abs(none.loc[name, "auc_15"] - 0.5), max(0.1, none.loc[name, "half_15"]), name)
            self.assertLess(none.loc[name, "warned"], 0.5)

    def test_the_second_half_chooses_nothing(self):
        demand, _ = log(3)
        louder = demand.copy()
        louder[len(demand) // 2 :] *= np.random.default_rng(4).lognormal(0, 0.02, len(demand) - len(demand) // 2)
        a, b = (signs.leads_of_log(d).set_index("signal") for d in (demand, louder))
        self.assertTrue((a["warned_first"] == b["warned_first"]).all())
        self.assertGreater(b.loc["slope over 15 minutes", "lead"], b.loc["slope over 15 minutes", "lead_best"])
        self.assertGreater(b.loc["slope over 15 minutes", "alarms"], 3 * a.loc["slope over 15 minutes", "alarms"])

    def test_days_of_the_log_begin_at_midnight(self):
        first = pd.Timestamp("1998-04-30T21:30") + pd.Timedelta(minutes=signs.STEP * signs.MIDNIGHT)
        self.assertEqual(first, pd.Timestamp("1998-05-01"))
        days = {day for _, day in signs.groups_of_log(np.zeros(40), np.full(40, 99), 3, slice(0, 40))}
        self.assertEqual(days, {0, 1})


class TheChapter(unittest.TestCase):
    def test_the_answer_is_three_sentences_whether_there_are_signs_or_none(self):
        for sign, want in [(4, "the level of *under way*, 4 s before"), (0, "*slow*, static: none")]:
            parts = planted(sign), planted(0, "bursts", 0)
            both = data_of([(r, of.seconds[r["scenario"], r["algorithm"], r["arm"], r["pair"]]) for of in parts for r in of.records if of is parts[0] or r["scenario"] != "steady"])
            found = signs.signs_of(both)
            says = signs.answer(found)
            self.assertIn(want, says)
            self.assertEqual(says.count(". ") + 1, 3, says)
            self.assertIn("| slow | static | 8 | 8 | 20 |", signs.of_seconds(found))
            with tempfile.TemporaryDirectory() as folder:
                for name in ("a.svg", "b.svg"):
                    figures.save(signs.figure(found), Path(folder, name))
                self.assertEqual(Path(folder, "a.svg").read_text(), Path(folder, "b.svg").read_text())

    def test_without_cells_the_log_alone_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            found = signs.signs_of(data.read(Path(folder)))
        self.assertIn("not run yet", signs.of_seconds(found).lower())
        self.assertIsNone(signs.figure(found))
        self.assertEqual(len(found.of_log), 7)


if __name__ == "__main__":
    unittest.main()
