"""What the switch to online did to the returns of a run."""

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report import facts, switch
from rl_training.report.bands import groups_of
from tests.report.run_files import finetune, rows_of, write_run


def loaded(*folders):
    return [LoggedRun.load(folder) for folder in folders]


def test_the_dip_at_the_switch(tmp_path):
    """-20 before; -50 after 20 steps is the lowest of the first half; -20 again after 40."""
    (run,) = runs = loaded(finetune(tmp_path / "run"))
    assert run.switch == 60
    (group,) = groups_of(runs)
    dip = switch.dip_of(group, runs)
    assert (dip.before.mean, dip.lowest, dip.lowest_at, dip.recovered_at, dip.depth) == (-20.0, -50.0, 80, 100, 30.0)
    assert switch.dip_cells(group, runs) == ["run", "60", "-20.00", "-50.00 at 20", "30.00", "40"]


def test_the_dip_is_that_of_the_curve(tmp_path):
    """Of five members the curve is their interquartile mean, which one that fell does not move."""
    rows = rows_of(RETURN, [[-20.0] * 5], range(5))
    rows += [{"env_step": 10, "step": 20, "member": m, "seed": m, RETURN: -90.0 if m == 0 else -19.0} for m in range(5)]
    runs = loaded(write_run(tmp_path / "run", rows, total_timesteps=10, finetune={"env_steps": 60}))
    (group,) = groups_of(runs)
    assert switch.dip_cells(group, runs)[2:5] == ["-20.00", "-19.00 at 10", "none"]


def test_without_an_evaluation_in_the_first_half_the_dip_is_not_known(tmp_path):
    rows = rows_of(RETURN, [[-90.0, -80.0], [-25.0, -15.0]])
    rows += [{"env_step": 60, "step": 80, "member": m, "seed": m, RETURN: -7.0} for m in (0, 1)]
    runs = loaded(write_run(tmp_path / "run", rows, total_timesteps=20, finetune={"env_steps": 60}))
    (group,) = groups_of(runs)
    assert switch.dip_of(group, runs) is None
    assert switch.dip_cells(group, runs) == ["run", "20", "-20.00", "not evaluated", facts.NOTHING, facts.NOTHING]


def test_the_return_before_the_switch_is_found_in_the_offline_run(tmp_path):
    rows = [{"env_step": 10, "step": 40, "member": m, "seed": m, RETURN: -7.0} for m in (0, 1)]
    block = {"env_steps": 20, "from_step": 30}
    online = write_run(tmp_path / "online", rows, finetune=block)
    offline = write_run(tmp_path / "offline", rows_of(RETURN, [[-9.0, -9.0], [-8.0, -8.0], [-4.0, -6.0]]))
    (run,) = loaded(online)
    assert switch.dip_of(groups_of([run])[0], [run]) is None
    runs = [run, *loaded(offline)]
    dip = switch.dip_of(groups_of(runs)[0], runs)
    assert (dip.before.mean, dip.depth, dip.recovered_at) == (-5.0, 2.0, None)
    unlike = loaded(write_run(tmp_path / "unlike", rows_of(RETURN, [[-9.0]] * 3, seeds=(0,))))
    assert switch.dip_of(groups_of(runs)[0], [run, *unlike]) is None


def test_the_offline_run_of_a_finetune_has_its_settings(tmp_path):
    rows = [{"env_step": 10, "step": 40, "member": m, "seed": m, RETURN: -7.0} for m in (0, 1)]
    other = {"algo_kwargs": {"beta": 5.0}}
    runs = loaded(
        write_run(tmp_path / "low", rows_of(RETURN, [[-9.0, -9.0]] * 3)),
        write_run(tmp_path / "high", rows_of(RETURN, [[-5.0, -5.0]] * 3), **other),
        write_run(tmp_path / "online", rows, finetune={"env_steps": 20, "from_step": 30}, log_interval=7, **other),
    )
    assert switch.return_before(groups_of(runs)[2], runs).mean == -5.0
    again = loaded(write_run(tmp_path / "again", rows_of(RETURN, [[-4.0, -4.0]] * 3), **other))
    assert switch.return_before(groups_of(runs)[2], [*runs, *again]) is None  # either may be it


def test_no_dip_is_told_from_evaluations_of_unequal_numbers_of_episodes(tmp_path):
    """Five episodes find a lower mean than ten did, by chance: their numbers stand beside the means, and no difference."""
    rows = rows_of(RETURN, [[-20.0]], (0,))
    rows += [{"env_step": 10, "step": 20, "member": 0, "seed": 0, RETURN: -25.0}]
    block = {"env_steps": 60, "eval_episodes": 5}
    runs = loaded(write_run(tmp_path / "run", rows, total_timesteps=10, eval_episodes=10, finetune=block))
    (group,) = groups_of(runs)
    cells = ["-20.00 (10 episodes)", "-25.00 at 10 (5 episodes)", facts.NOTHING, facts.NOTHING]
    assert switch.dip_cells(group, runs)[2:] == cells
    assert "the mean over the 10 (before the switch) or 5 (after it) episodes" in facts.returns_note(runs, ["run"])
