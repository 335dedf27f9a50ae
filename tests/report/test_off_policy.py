"""What `rl-training ope` kept in a run is on its page and in its Markdown; a file that cannot be trusted is a caution."""

import copy
import json
import re

import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report.off_policy.drawing import Scale
from rl_training.report.off_policy.kept import Estimate
from rl_training.report.page.document import MARK, render_page
from rl_training.report.tables import markdown
from rl_training.storage import RUN_FILES
from tests.report.run_files import finetune, rows_of, write_run
from tests.report.test_page import Outline

BAD = "<script>alert(1)</script>"


def opinion(value, reach=10.0, verdict="trust", reasons=()):
    interval = [None, None] if value is None else [value - reach, value + reach]
    known = {"value": value, "std": 5.0, "interval": interval, "effective_episodes": 12.5}
    return {**known, "verdict": verdict, "reasons": list(reasons)}


def policy(member=0, value=-138.5, beyond=0.31, verdict="doubt", reasons=("model: it leaves the range",)):
    estimates = {
        "fqe": opinion(-166.3),
        "model": opinion(-110.7, verdict="doubt"),
        "dr": opinion(None, verdict="cannot tell"),
    }
    estimates["wpdis"] = opinion(-188.2, verdict="cannot tell")
    support = {"beyond": beyond, "outside_in_model": 0.1, "actions": {"steam": 0.3, "flow": 2.4}}
    support |= {"observations": {"level": -0.8, "T": 1.3}, "episodes": {"12": 0.9, "3": 0.4}}
    who = {"name": "x", "run": "x", "step": 32000, "member": member, "seed": 100 + member, "algo": "iql", "scores": {}}
    return {**who, **opinion(value, 60.0, verdict, reasons), "estimates": estimates, "support": support}


def report(*policies, **changes):
    logged = {**opinion(-393.7, 70.0), "return_mean": -658.0, "return_std": 531.0, "slope": 2.5, "offset": 1.0}
    data = {"data": "plant.csv", "fingerprint": "f" * 64, "rows": 10000, "episodes": 50, "gamma": 0.99, "logged": logged}
    return {**data, "policies": list(policies or [policy()]), "warnings": ["they were trained on these rows"], **changes}


def run_with(folder, kept):
    write_run(folder, rows_of(RETURN, [[-1.0], [-0.5]], seeds=(0,)))
    (folder / "ope.json").write_text(kept if isinstance(kept, str) else json.dumps(kept))
    return LoggedRun.load(folder)


def section_of(page):
    found = re.search(r"<section[^>]*><h2>Off-policy evaluation</h2>.*?</section>", page, re.DOTALL)
    return found.group(0) if found else ""


@pytest.mark.parametrize(
    ("whole", "text"), [(50, "50 episodes. "), (3, "50 parts of 3 episodes, which count as"), (1, "50 parts of 1 episode, ")]
)
def test_parts_of_episodes_are_not_called_episodes(tmp_path, whole, text):
    shown = section_of(render_page([run_with(tmp_path / "a", report(whole_episodes=whole))]))
    assert f"Judged by plant.csv: 10,000 rows, {text}" in shown


def test_a_page_shows_values_verdict_reasons_and_support(tmp_path):
    shown = section_of(render_page([run_with(tmp_path / "a", report())]))
    for text in ("Judged by plant.csv: 10,000 rows, 50 episodes", "discounted by 0.99", "they were trained on these rows"):
        assert text in shown
    rows = [re.sub("<[^>]+>", "|", row) for row in re.findall("<tr>(.*?)</tr>", shown, re.DOTALL)]
    (logged,) = [row for row in rows if "the log" in row and "-393.7" in row and "to -323.7" in row.partition("logged")[0]]
    (own,) = [row for row in rows if "32,000" in row]
    assert rows.index(logged) + 1 == rows.index(own)
    for text in (
        "0 (seed 100)",
        "-138.5",
        "(-198.5 to -78.50)",
        "-166.3|",
        "-110.7 ~",
        "|?|",
        "-188.2 ?",
        "12.5",
        "31.0%",
        "doubt",
    ):
        assert text in own
    assert "<dd>model: it leaves the range</dd>" in shown
    assert "31.0% of its actions are beyond the data" in shown
    assert shown.index(">flow<") < shown.index(">steam<"), "the largest first"
    assert "1.3 higher" in shown
    assert "0.8 lower" in shown
    assert "90%" in shown
    assert 'aria-label="a: -138.5 (-198.5 to -78.50)"><title>a: -138.5' in shown


def test_which_checkpoint_is_said_where_a_run_learned_on(tmp_path):
    kept = report({**policy(), "step": 60})
    folder = finetune(tmp_path / "fine")
    (folder / "ope.json").write_text(json.dumps(kept))
    told = "fine: evaluated is the checkpoint at step 60, the offline policy, before the run went online; its last policy"
    for text in (section_of(render_page([LoggedRun.load(folder)])), markdown([LoggedRun.load(folder)], MARK)):
        assert f"{told} is that of step 120" in text
    run = run_with(tmp_path / "a", report({**policy(), "step": 10}))
    assert "a: evaluated is the checkpoint at step 10, an earlier policy of the run;" in section_of(render_page([run]))
    assert "evaluated is" not in render_page([run_with(tmp_path / "b", report({**policy(), "step": 20}))])


def test_a_run_without_one_has_no_section(tmp_path):
    run = LoggedRun.load(write_run(tmp_path / "a", rows_of(RETURN, [[-1.0]], seeds=(0,))))
    assert "Off-policy" not in render_page([run])
    assert "Off-policy" not in markdown([run], MARK)


def test_a_policy_within_the_data_has_no_bars(tmp_path):
    shown = section_of(render_page([run_with(tmp_path / "a", report(policy(beyond=0.05, verdict="trust", reasons=())))]))
    assert "No policy leaves the data more often" in shown
    assert "Where it leaves the data" not in shown
    assert "Reasons" not in shown


def test_members_are_ranked_and_those_without_a_value_are_last(tmp_path):
    kept = report(policy(0, None, 0.7, "cannot tell"), policy(1, -500.0, 0.01), policy(2, -100.0, 0.2))
    page = render_page([run_with(tmp_path / "a", kept)])
    assert re.findall(r"<td>(\d) \(seed 10\d\)</td>", page) == ["2", "1", "0"]
    left = re.findall(r'<p class="left"><strong>(.*?)</strong>', page)
    assert left == ["a, member 0", "a, member 2"]


def test_members_whose_value_cannot_be_told_come_after_all_others(tmp_path):
    wild, doubted, trusted = policy(0, 900.0, 0.7, "cannot tell"), policy(1, -100.0), policy(2, -500.0, 0.0, "trust")
    run = run_with(tmp_path / "a", report(wild, doubted, trusted))
    assert re.findall(r"<td>(\d) \(seed 10\d\)</td>", render_page([run])) == ["2", "1", "0"]
    assert re.findall(r"\| (\d) \(seed 10\d\) \|", markdown([run], MARK)) == ["2", "1", "0"]


def test_runs_judged_by_one_log_share_a_table_and_others_do_not(tmp_path):
    runs = [run_with(tmp_path / "a", report()), run_with(tmp_path / "b", report(policy(value=-90.0)))]
    both = section_of(render_page(runs))
    assert both.count("Judged by") == 1
    assert both.index("b <span") < both.index("a <span")
    runs.append(run_with(tmp_path / "c", report(gamma=0.9)))
    assert section_of(render_page(runs)).count("Judged by") == 2
    assert markdown(runs, MARK).count("## Off-policy evaluation") == 2


def test_a_log_with_two_values_is_explained(tmp_path):
    """Two calls of `ope` on the same rows; a third judged by another discount, which explains itself."""
    told = "Another table has the same log with another value: policies that are evaluated together share learned features."
    other = {**report()["logged"], "value": -380.0}
    runs = [run_with(tmp_path / "a", report()), run_with(tmp_path / "b", report(logged=other, data="copy.csv"))]
    runs.append(run_with(tmp_path / "c", report(gamma=0.9)))
    for text in (section_of(render_page(runs)), markdown(runs, MARK)):
        assert (text.count("Judged by"), text.count(told)) == (3, 2)
    assert told not in render_page([runs[0], runs[2]])


def test_hostile_texts_are_inert(tmp_path):
    one = policy(reasons=(BAD,))
    one["support"] |= {"actions": {BAD: 1.0}, "observations": {f"{BAD}\ud800|": 1.0}, "episodes": {BAD: 1.0}}
    run = run_with(tmp_path / "a", report(one, data=f"\x1b{BAD}", warnings=[BAD]))
    page = render_page([run])
    page.encode()
    assert [tag for tag, _ in Outline(page).tags].count("script") == 2
    assert section_of(page).count("&lt;script&gt;") >= 6
    text = markdown([run], MARK)
    text.encode()
    assert "<script" not in text
    assert "\\ud800\\| 1 higher" in text


def without(key):
    kept = report()
    del kept["policies"][0]["support"][key]
    return kept


def changed(key, value):
    kept = report()
    kept["policies"][0][key] = value
    return kept


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ('{"data": ', "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "data is missing"),
        (without("beyond"), "policies: 0: support: beyond is missing"),
        (changed("value", True), "value is not a number"),
        (changed("interval", [1.0]), "interval: high is missing"),
        (changed("verdict", BAD), "verdict is not one of trust, doubt, cannot tell"),
        (changed("step", -1), "step is not a whole number"),
        (changed("estimates", []), "estimates is not an object"),
        (changed("reasons", [1]), "reasons is not a list of texts"),
        (report(policies=[3]), "0 is not an object"),
        (json.dumps(report()).replace("0.99", "1e999"), "1e999 is too large a number"),
        (json.dumps(report()).replace("0.99", "9" * 400), "gamma is not a number"),
        (" " * (5 << 20), "has 5,242,880 bytes"),
    ],
)
def test_a_damaged_file_is_a_caution(tmp_path, kept, told):
    run = run_with(tmp_path / "a", kept)
    page = render_page([run])
    (line,) = re.findall("<h2>Warnings</h2>.*?<li>(.*?)</li>", page)
    assert told in line
    assert "ope.json" in line
    assert not section_of(page)
    assert "* " + re.sub("</?code>", "`", line) + "\n" in markdown([run], MARK)


def test_what_is_no_plain_file_is_a_caution(tmp_path):
    run = run_with(tmp_path / "a", report())
    (run.path / "ope.json").rename(tmp_path / "elsewhere")
    (run.path / "ope.json").symlink_to(tmp_path / "elsewhere")
    assert "ope.json: is not a plain file" in render_page([run])


def test_markdown_has_the_tables(tmp_path):
    lines = markdown([run_with(tmp_path / "a", report())], MARK).splitlines()
    assert lines.count("## Off-policy evaluation") == 1
    dash = "\N{EN DASH}"
    unknown = " | ".join([dash] * 4)
    assert f"| the log | {dash} | {dash} | -393.7 (-463.7 to -323.7) | {unknown} | 12.5 | {dash} | {dash} |" in lines
    assert (
        "| a | 32,000 | 0 (seed 100) | -138.5 (-198.5 to -78.50) | -166.3 | -110.7 ~ | ? | -188.2 ? | 12.5 | 31.0% | "
        "doubt: model: it leaves the range |"
    ) in lines
    assert "| a | 31.0% | flow 2.4, steam 0.3 | T 1.3 higher, level 0.8 lower | 12 (90%), 3 (40%) |" in lines


def test_very_many_policies_with_long_texts_stay_small(tmp_path):
    one = policy(reasons=['"' * 300] * 20)
    one["support"] |= {"actions": {f"{i}" + '"' * 300: 1.0 for i in range(20)}}
    many = [{**copy.deepcopy(one), "member": i} for i in range(80)]
    page = render_page([run_with(tmp_path / str(i), report(*many)) for i in range(2)])
    assert len(section_of(page).encode()) < 1_200_000
    assert "The first 100 of 160" in page
    assert "The worst 12 of 160." in page


def test_to_start_over_removes_it():
    assert "ope.json" in RUN_FILES


def test_an_advice_stands_below_the_reasons(tmp_path):
    """Reports of earlier versions have none."""
    shown = section_of(render_page([run_with(tmp_path / "a", report({**policy(), "advice": f"keep more {BAD}"}))]))
    assert "<dd>To know more: keep more &lt;script&gt;" in shown
    assert BAD not in shown
    assert "To know more" not in section_of(render_page([run_with(tmp_path / "b", report())]))


def scale():
    return Scale.of(Estimate(0.0, -10.0, 10.0, 5.0, "trust"), [])


@pytest.mark.parametrize(
    ("estimate", "side", "arrow", "line"),
    [
        (Estimate(-50.0, -90.0, 5.0, 5.0, "cannot tell"), "below", "M22.0 4L2.0 10L22.0 16Z", True),
        (Estimate(50.0, -5.0, 90.0, 5.0, "cannot tell"), "above", "M978.0 4L998.0 10L978.0 16Z", True),
        (Estimate(50.0, 40.0, 90.0, 5.0, "cannot tell"), "above", "M978.0 4L998.0 10L978.0 16Z", False),
    ],
)
def test_a_value_beyond_the_scale_is_an_arrow_at_its_edge_and_is_named(estimate, side, arrow, line):
    drawn = scale().drawn(estimate, "far").text
    assert f'<path class="arrow" d="{arrow}"/>' in drawn
    assert "point" not in drawn
    assert ('class="interval"' in drawn) is line
    assert f"the value {estimate.value:.2f} lies {side} the scale</title>" in drawn


def test_a_value_on_the_scale_is_a_dot():
    drawn = scale().drawn(Estimate(3.0, -5.0, 90.0, 5.0, "doubt"), "near").text
    assert drawn.count('class="point"') == 1
    assert "arrow" not in drawn
    assert "the scale" not in drawn


def test_the_label_of_a_policy_names_its_value_beyond_the_scale(tmp_path):
    far = policy(1, -90_000.0, verdict="cannot tell")
    shown = section_of(render_page([run_with(tmp_path / "a", report(policy(), far))]))
    assert '<span class="soft small">the value -90,000 lies below the scale</span>' in shown
    assert shown.count('class="arrow"') == 1
