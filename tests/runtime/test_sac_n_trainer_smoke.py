"""A short run of SAC-N's trainer."""

from rl_training.runtime import load_checkpoint
from tests.contract import check_short_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    check_short_run("sac_n", tmp_path)


def test_the_temperature_is_learned_and_the_ensemble_saved(finished):
    tensors = load_checkpoint(finished("sac_n").checkpoint).tensors
    assert tensors["temperature/log_alpha"].item() != 0.0
    assert tensors["critic/0/weight"].shape == (1, 3, 4, 16)
