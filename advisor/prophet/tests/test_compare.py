"""README.md has the tables of compare.py, these have what comes out, and the sentences beside them hold."""

from __future__ import annotations

import pytest

import compare

ROWS = compare.rows(compare.saved(compare.HERE / "comparison.csv", compare.Row))
LOG = {(row.model, row.series, row.minutes): row for row in ROWS if row.scale == "log"}


def test_the_readme_has_what_the_tables_come_to() -> None:
    found = compare.SECTION.findall((compare.HERE / "README.md").read_text())
    assert found == [compare.section(ROWS, compare.costs(compare.saved(compare.HERE / "costs.csv", compare.Cost)))]


@pytest.mark.parametrize("name", ["day", "walk"])
def test_the_table_has_what_is_played(name: str) -> None:
    for row in compare.play("ets", name, "log"):
        assert row[4:] == pytest.approx(LOG["ets", name, row.minutes][4:], abs=0.05)


def test_what_the_readme_says_of_the_tables() -> None:
    assert len(LOG) == len(compare.MODELS) * len(compare.SERIES) * len(compare.LEADS)
    for (model, name, minutes), row in LOG.items():
        if name == "walk":
            assert row.ratio > 0.995
            assert row.abstains == row.days
        else:
            assert row.ratio < (1 if minutes < 30 else 0.9)
            assert row.ratio > 0.7 or minutes > 5
        if model == "ets":
            assert row.error < LOG["prophet", name, minutes].error + 0.005


def test_a_table_with_other_names_is_refused() -> None:
    with pytest.raises(ValueError, match=r"costs\.csv: the first line is 'model,start_s,.*', want 'model,series,"):
        compare.saved(compare.HERE / "costs.csv", compare.Row)
