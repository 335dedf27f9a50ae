"""A short run of CQL's trainer, and its options from a config."""

from tests.contract import check_short_run
from tests.helpers import metric_rows, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    check_short_run("cql", tmp_path)


def test_the_options_train_from_a_config(tmp_path):
    options = {"lagrange_gap": 1.0, "max_target_backup": True, "cql_clip_diff_min": -200.0, "backup_entropy": True}
    result = tiny_run(tmp_path, "cql", seeds=[0, 1], algo_kwargs=options)
    state = result.learner.state_dict()
    assert (state["temperature/log_multiplier"] != 1.0).all()
    assert len(metric_rows(tmp_path)) == 2 * (12 + 3)
