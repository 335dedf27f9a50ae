"""A short run of EDAC's trainer, and a sweep over its weight."""

from tests.contract import check_short_run
from tests.helpers import metric_rows, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    rows = check_short_run("edac", tmp_path)
    assert all("train/diversity_loss" in row for row in rows)


def test_the_weight_can_be_swept(tmp_path):
    result = tiny_run(tmp_path, "edac", sweep={"eta": [0.0, 5.0]})
    assert result.learner.knobs.eta.tolist() == [[0.0], [5.0]]
    assert {row["member"] for row in metric_rows(tmp_path)} == {0, 1}
