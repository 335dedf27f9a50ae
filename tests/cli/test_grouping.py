"""What is said of several policies in one line."""

from rl_training.cli.grouping import Remark, grouped

NAMES = ["runs/a:0", "runs/a:1", "runs/a:10", "runs/b"]


def test_remarks_that_differ_only_in_numbers_are_one_line():
    texts = ["doubt: 27% of its actions", "doubt: 9% of its actions", "doubt: 31% of its actions"]
    assert grouped([Remark(*pair) for pair in zip(["runs/b", "runs/a:10", "runs/a:1"], texts, strict=True)], NAMES) == [
        "runs/b, runs/a:1,10: doubt: 9 to 31% of its actions"
    ]


def test_what_holds_for_all_names_nobody_and_equal_numbers_stay():
    assert grouped([Remark(name, "also: grows by 2% of -1.5e-05") for name in NAMES], NAMES) == [
        "all 4: also: grows by 2% of -1.5e-05"
    ]


def test_other_words_are_other_lines_in_the_order_of_the_first():
    remarks = [Remark("runs/a:0", "x 1"), Remark("runs/a:0", "y"), Remark("runs/b", "x 2"), Remark("runs/b", "z")]
    assert grouped(remarks, NAMES) == ["runs/a:0, runs/b: x 1 to 2", "runs/a:0: y", "runs/b: z"]


def test_what_is_said_of_one_alone_has_all_of_it():
    text = "it leaves the data"
    one, other = Remark("runs/b", text, "; episodes 8"), Remark("runs/a:0", text, "; episodes 3")
    assert grouped([one], NAMES) == ["runs/b: it leaves the data; episodes 8"]
    assert grouped([one, other], NAMES) == ["runs/b, runs/a:0: it leaves the data"]


def test_a_number_in_a_name_is_no_number():
    remarks = [Remark("runs/a:0", "Tarif 24h is low, T_2 is high"), Remark("runs/b", "Tarif 12h is low, T_2 is high")]
    assert len(grouped(remarks, NAMES)) == 2
