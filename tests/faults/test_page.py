"""The table of `docs/reliability.md` is the one that the fault tests wrote."""

import json

from tests.faults.counting import BEGIN, END, FIGURES, PAGE, ROWS, table, with_table


def test_the_page_shows_the_stored_figures():
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert with_table(text, json.loads(FIGURES.read_text())) == text


def test_counts_of_several_tests_are_added_up():
    counts = {"a": [["flips", 3, 4, ""]], "b": [["flips", 2, 2, ""], ["soak", 1, 1, "memory grew by 1.0 %"]]}
    *_, flips, soak = table(counts)
    assert flips.endswith("| 5 of 6 |")
    assert soak == f"| {ROWS['soak']} | 1 of 1 (memory grew by 1.0 %) |"
