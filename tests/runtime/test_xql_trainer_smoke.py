"""A short run of XQL's trainer, with and without the paper's options."""

from tests.contract import check_short_run
from tests.helpers import assert_same_run, metric_rows, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    check_short_run("xql", tmp_path)


def test_the_paper_s_options_train_from_a_config(tmp_path):
    options = {"critic_loss": "huber", "value_layer_norm": True, "loss_temperature": 2.0, "max_value_diff_exp": 5.0}
    result = tiny_run(tmp_path, "xql", algo_kwargs=options)
    assert "value/0/scale" in result.learner.state_dict()
    assert "critic/0/scale" not in result.learner.state_dict()


def test_the_vanilla_run_is_iql_s_bit_for_bit(tmp_path):
    tiny_run(tmp_path / "xql", "xql", algo_kwargs={"vanilla_value_loss": True, "expectile": 0.9})
    tiny_run(tmp_path / "iql", "iql", algo_kwargs={"expectile": 0.9})
    assert_same_run(tmp_path / "xql", tmp_path / "iql")
    assert metric_rows(tmp_path / "xql")
