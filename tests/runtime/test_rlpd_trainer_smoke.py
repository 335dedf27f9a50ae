"""A short run of RLPD's trainer: pretraining, replay, mixed batches, checkpoints of both phases."""

import pytest

from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.runtime import load_checkpoint
from tests.contract import check_short_run
from tests.helpers import checkpoints, metric_rows, run_values, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    rows = check_short_run("rlpd", tmp_path)
    assert all((row["train/prior_samples"], row["train/online_samples"]) == (16.0, 16.0) for row in rows)


def test_pretraining_comes_first_and_outside_the_budget(finished):
    result = finished("rlpd")
    assert (result.step, result.env_step) == (30 + 224, 120)
    rows = metric_rows(result.run_dir)
    pretraining = [row for row in rows if "env_step" not in row]
    assert [row["step"] for row in pretraining] == [10, 20, 30, 30]  # the end of the phase is evaluated
    assert all(row["train/prior_samples"] == 32.0 for row in pretraining[:3])
    assert all(row["train/online_samples"] == 0.0 for row in pretraining[:3])
    names = [path.name for path in checkpoints(result.run_dir)]
    assert names[0] == "step-000000030"
    assert names[-1] == "env-000000120_step-000000254"
    assert load_checkpoint(result.checkpoint).tensors["adam/count/critic"].tolist() == [254]


@pytest.mark.parametrize(("ratio", "size"), [*((ratio, 20) for ratio in (0.0, 0.1, 0.25, 0.5, 0.7, 1.0)), (0.1, 256)])
def test_every_batch_holds_exactly_its_share(tmp_path, ratio, size):
    seen = []

    def spy(learner, batch, step):
        prior = batch.prior[0]
        seen.append(int(prior.sum()))
        assert prior[: seen[-1]].all()  # first the prior rows, then the fresh ones
        return original(learner, batch, step)

    from rl_training.algorithms.rlpd import RLPD

    original = RLPD.loss
    kwargs = {"offline_batch_ratio": ratio, "batch_size": size, "offline_pretrain_updates": 0, "hidden_sizes": [4]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RLPD, "loss", spy)
        tiny_run(tmp_path, "rlpd", total_timesteps=30, eval_interval=100, algo_kwargs=kwargs)
    assert seen == [round(ratio * size)] * 44


def test_the_paper_s_setting_trains(tmp_path):
    paper = {
        "num_critics": 10,
        "critic_layer_norm": True,
        "gradient_updates_per_step": 20,
        "alpha": "auto",
        "offline_pretrain_updates": 0,
    }
    result = tiny_run(tmp_path, "rlpd", total_timesteps=40, algo_kwargs=paper)
    last = load_checkpoint(result.checkpoint)
    assert last.tensors["adam/count/critic"].tolist() == [640]
    assert last.tensors["adam/count/actor"].tolist() == [32]
    assert last.tensors["critic/0/scale"].shape == (1, 10, 16)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algo_kwargs": {"offline_batch_ratio": 1.5}}, "`algo_kwargs.offline_batch_ratio` = 1.5"),
        ({"algo_kwargs": {"offline_pretrain_updates": -1}}, "`algo_kwargs.offline_pretrain_updates` = -1"),
        ({"env_id": None}, "rlpd learns in an environment"),
        ({"finetune": {"env_steps": 5}}, "`finetune` is for offline algorithms"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        make_config(run_values("rlpd", **changes))


def test_data_is_needed(tmp_path):
    with pytest.raises(ConfigError, match="there is no dataset"):
        tiny_run(tmp_path, "rlpd", algo_kwargs={"dataset": None})
