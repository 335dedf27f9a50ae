"""The command line as its users meet it: exit codes and one clear line.

Processes of their own train, evaluate, list, refuse a config, race and meet a closed pipe; the rest is called inside
this process, since starting another interpreter would prove nothing more.
"""

import fcntl
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest
import torch
import yaml

import rl_training
from rl_training.cli import parse_seeds, run
from rl_training.config.loading import packaged_configs
from rl_training.errors import ConfigError
from rl_training.registry import REGISTRY
from rl_training.runtime import load_checkpoint
from tests.helpers import call_cli, command, environment, generator, run_cli, run_values, small_arrays


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(run_values()))
    done = run_cli("train", folder / "tiny.yaml", "--run-dir", folder / "run", "--seeds", "0..1")
    return folder, done


def test_train_ends_with_an_evaluated_policy(trained):
    folder, done = trained
    assert "seed 0: return -" in done.stdout
    assert f"run: {folder / 'run'}" in done.stdout
    assert "step 120: mean return" in done.stderr
    config = yaml.safe_load((folder / "run" / "config.yaml").read_text())
    assert config["seeds"] == [0, 1]
    assert config["algo_kwargs"]["gamma"] == 0.99  # complete, defaults included
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["dataset"]["rows"] == 600
    assert set(record["versions"]) >= {"rl_training", "torch", "gymnasium", "numpy", "python"}


def test_evaluate(trained, capsys):
    folder, _ = trained
    report = json.loads(run_cli("evaluate", folder / "run", "--episodes", "3", "--json").stdout)
    assert {"return_mean", "return_std", "returns", "lengths", "members"} <= set(report)
    assert len(report["returns"]) == 6
    text = call_cli(capsys, "evaluate", folder / "run", "--episodes", "3").stdout
    assert re.search(r"\nreturn -\S+ \+- \S+ over 2 seeds  \(95 % of the mean: -\S+ to -?\S+\)\n", text)
    assert "member 1 seed 1" in text
    single = json.loads(call_cli(capsys, "evaluate", folder / "run", "--episodes", "3", "--member", "1", "--json").stdout)
    assert single["return_mean"] == report["members"][1]["return_mean"]


def test_predict(trained, capsys):
    folder, _ = trained
    done = call_cli(capsys, "predict", folder / "run", "--obs", "[1.0, 0.0, 0.0]")
    (action,) = json.loads(done.stdout)
    assert -2.0 <= action <= 2.0
    assert "the best by last evaluation" in done.stderr
    many = json.loads(
        call_cli(capsys, "predict", folder / "run", "--obs", "[[1, 0, 0], [0, 1, 0]]", "--member", "0", "--json").stdout
    )
    assert np.shape(many["action"]) == (2, 1)
    assert many["member"] == 0
    newest = sorted((folder / "run" / "checkpoints").glob("step-*"))[-1]
    assert json.loads(call_cli(capsys, "predict", newest, "--obs", "[1.0, 0.0, 0.0]").stdout) == [action]


def test_samples_of_predict_differ_from_call_to_call_unless_they_have_a_seed(trained, capsys):
    folder, _ = trained

    def sample(*options):
        asked = ("predict", folder / "run", "--member", "0", "--obs", "[1.0, 0.0, 0.0]", "--stochastic", *options)
        return call_cli(capsys, *asked).stdout

    assert len({sample() for _ in range(5)}) > 1
    assert sample("--seed", "3") == sample("--seed", "3") != sample("--seed", "4")
    refused = call_cli(capsys, "predict", folder / "run", "--obs", "[1.0, 0.0, 0.0]", "--seed", "3", code=2)
    assert "--seed: the mean action needs none; add --stochastic" in refused.stderr


def test_suggested_commands_can_be_pasted(tmp_path, capsys):
    place = tmp_path / "läuft noch" / "it's a run"
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(run_values()))
    done = call_cli(capsys, "train", tmp_path / "tiny.yaml", "--run-dir", place)
    (suggested,) = [line for line in done.stdout.splitlines() if line.startswith("next: ")]
    assert shlex.split(suggested)[1:4] == ["rl-training", "evaluate", str(place)]


def test_resume_of_a_finished_run_and_list(trained, capsys):
    folder, _ = trained
    done = json.loads(call_cli(capsys, "resume", folder / "run", "--json").stdout)
    assert done["step"] == 120
    listing = json.loads(run_cli("list", "--json").stdout)
    assert "iql" in listing["algorithms"]
    assert "iql/pendulum" in listing["configs"]
    assert set(listing["titles"]) == set(listing["configs"])


def test_list_groups_configs_by_algorithm(capsys):
    lines = call_cli(capsys, "list").stdout.splitlines()
    groups = [line.split()[0] for line in lines[1:-2] if re.match(r"  \S", line)]
    assert groups == list(REGISTRY)
    group = lines[lines.index(next(line for line in lines if line.startswith("  iql "))) + 1 :]
    own = list(itertools.takewhile(lambda line: line.startswith("      "), group))
    assert [line.split()[0] for line in own] == [name for name in packaged_configs() if name.startswith("iql/")]
    assert own[-2].split(maxsplit=1)[1] == "IQL on random data from Pendulum-v1"
    assert max(map(len, lines)) <= 100


def test_list_prints_the_text_of_a_config(capsys):
    text = packaged_configs()["rebrac/d4rl-locomotion"]
    assert "per dataset" in text  # in a comment
    assert call_cli(capsys, "list", "rebrac/d4rl-locomotion").stdout.startswith(text)
    report = json.loads(call_cli(capsys, "list", "rebrac/d4rl-locomotion", "--json").stdout)
    assert report["text"] == text
    assert report["values"]["algo_kwargs"]["actor_learning_rate"] == 1e-3


def test_list_explains_an_algorithm(capsys):
    lines = call_cli(capsys, "list", "cql").stdout.splitlines()
    assert lines[0].startswith("  cql    Conservative Q-learning: offline; ")
    assert "  cql_alpha = 5: Weight of the conservative penalty." in lines
    assert "  actor_learning_rate = 0.0001: Adam step size of the policy." in lines  # a default that it changes
    assert "  Every learner: actor_weight_decay=0, max_grad_norm=null" in lines
    assert max(map(len, lines)) <= 100
    report = json.loads(call_cli(capsys, "list", "cql", "--json").stdout)
    assert set(report["options"]) == set(REGISTRY["cql"].config.model_fields)
    assert report["options"]["num_cql_samples"] == {
        "default": 10,
        "legal": "integer >= 1 and <= 1000",
        "text": "Actions per source (uniform, policy at s, policy at s') in the penalty.",
    }
    assert report["configs"] == [name for name in packaged_configs() if name.startswith("cql/")]


def test_list_of_an_unknown_name(capsys):
    check_one_line(call_cli(capsys, "list", "iql/pendulm", code=2), "Did you mean `iql/pendulum`", "rl-training list")
    check_one_line(call_cli(capsys, "list", "cqll", "--json", code=2), "Did you mean `cql`")


def check_one_line(done, *parts):
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for part in parts:
        assert part in lines[0]
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], ["Missing argument", "`rl-training train --help`"]),
        (["train", "iql", "--bogus"], ["--bogus", "`rl-training train --help`"]),
        (["train", "iql", "--seed", "x"], ["--seed", "`rl-training train --help`"]),
        (["train", "iql", "--seed"], ["requires an argument", "`rl-training train --help`"]),
        (["data"], ["Missing command", "`rl-training data --help`"]),
        (["data", "inspect", "x", "--format"], ["requires an argument", "`rl-training data inspect --help`"]),
        (["tune", "iql"], ["Missing option", "`rl-training tune run --help`"]),
        (["trane"], ["trane", "`rl-training --help`"]),
    ],
)
def test_a_usage_error_names_the_help_of_its_command(capsys, arguments, words):
    check_one_line(call_cli(capsys, *arguments, code=2), *words)


def test_wrong_usage_exits_2(trained, tmp_path, capsys):
    folder, _ = trained
    tiny = folder / "tiny.yaml"
    check_one_line(
        call_cli(capsys, "train", tiny, "--set", "algo=iqx", code=2), "unknown algorithm `iqx`", "Did you mean `iql`"
    )
    check_one_line(
        call_cli(capsys, "train", tiny, "--set", "algo_kwargs.expectle=1", code=2),
        "unknown key `algo_kwargs.expectle`",
        "`expectile`",
    )
    check_one_line(call_cli(capsys, "train", tiny, "--set", "algo_kwargs.expectile=1.5", code=2), "1.5", ">= 0.5 and < 1.0")
    check_one_line(
        call_cli(capsys, "train", tiny, "--set", "env_id=CartPole-v1", "--run-dir", tmp_path / "x", code=2),
        "Discrete(2)",
        "supported",
    )
    check_one_line(
        call_cli(capsys, "train", tiny, "--set", "env_id=Pendulum-v9", "--run-dir", tmp_path / "y", code=2), "Pendulum-v1"
    )
    check_one_line(call_cli(capsys, "train", "iql/pendulm", code=2), "Did you mean `iql/pendulum`")
    check_one_line(call_cli(capsys, "train", tiny, "--run-dir", folder / "run", code=2), "already holds a run", "--overwrite")
    check_one_line(call_cli(capsys, "train", tiny, "--device", "cuda:9", "--run-dir", tmp_path / "z", code=2), "cuda:9")
    check_one_line(call_cli(capsys, "train", tiny, "--seeds", "3..1", code=2), "0..9")
    check_one_line(call_cli(capsys, "predict", folder / "run", "--obs", "[1, 2]", code=2), "(3,)")
    check_one_line(call_cli(capsys, "predict", folder / "run", "--obs", "cos", code=2), "JSON list")


def test_nothing_is_created_by_a_wrong_config(tmp_path):
    run_cli("train", "iql/pendulum", "--set", "seed=-1", code=2, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_bad_data_exits_3(tmp_path, capsys):
    arrays = small_arrays(observation_dim=3, action_dim=1)
    arrays["rewards"][[4, 9]] = np.nan
    np.savez(tmp_path / "d.npz", **arrays)
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump(run_values(env_id=None, algo_kwargs={"dataset": {"path": str(tmp_path / "d.npz")}}))
    )
    done = call_cli(capsys, "train", tmp_path / "c.yaml", "--run-dir", tmp_path / "run", code=3)
    check_one_line(done, "d.npz", "`rewards` is NaN or inf in 2 rows (first: 4, 9)")
    check_one_line(
        call_cli(capsys, "train", tmp_path / "c.yaml", "--run-dir", tmp_path / "r2", "--set", "env_id=Pendulum-v1", code=3),
        "NaN",
    )


def test_bad_checkpoints_exit_4(trained, tmp_path, capsys):
    folder, _ = trained
    check_one_line(call_cli(capsys, "evaluate", tmp_path / "absent", code=4), "there is no run or checkpoint here")
    check_one_line(call_cli(capsys, "evaluate", tmp_path, code=4), "there is no checkpoint")
    newest = sorted((folder / "run" / "checkpoints").glob("step-*"))[-1]
    for name in ("manifest.json", "state.json", "state.safetensors"):
        copy = shutil.copytree(newest, tmp_path / f"flip-{name}")
        data = bytearray((copy / name).read_bytes())
        data[generator(1).integers(len(data))] ^= 4
        (copy / name).write_bytes(data)
        check_one_line(call_cli(capsys, "predict", copy, "--obs", "[1, 0, 0]", code=4), name)
    copy = shutil.copytree(newest, tmp_path / "cut")
    (copy / "state.safetensors").write_bytes((copy / "state.safetensors").read_bytes()[:100])
    check_one_line(call_cli(capsys, "predict", copy, "--obs", "[1, 0, 0]", code=4), "state.safetensors")


def test_divergence_exits_5(trained, tmp_path, capsys):
    folder, _ = trained
    done = call_cli(
        capsys,
        "train",
        folder / "tiny.yaml",
        *("--run-dir", tmp_path / "run", "--set", "algo_kwargs.reward.scale=1e30"),
        *("--set", "algo_kwargs.critic_learning_rate=1.0", "--set", "learning_rate_schedule=constant"),
        code=5,
    )
    assert "error: training diverged: seed 0 met NaN or inf" in done.stderr


def test_unwritable_places_exit_6(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    done = call_cli(capsys, "train", "iql/pendulum", "--run-dir", tmp_path / "file" / "run", code=6)
    check_one_line(done, "cannot be written")


def test_ctrl_c_outside_training_exits_130(trained, monkeypatch, capsys):
    """Inside this process: a signal from outside may fall into an import's clean-up, where Python ignores it."""
    folder, _ = trained

    def ctrl_c(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rl_training.envs.environments.EnvBatch.reset_all", ctrl_c)
    assert call_cli(capsys, "evaluate", folder / "run", code=130).stdout == ""


def test_overwrite_deletes_nothing_before_the_new_run_is_known_to_be_good(trained, tmp_path, capsys):
    folder, _ = trained
    copy = shutil.copytree(folder / "run", tmp_path / "run")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != "run.lock"}
    for change in ("env_id=Nope-v1", "env_id=CartPole-v1", "algo_kwargs.dataset={path: absent.npz}"):
        code = 3 if "absent" in change else 2
        call_cli(capsys, "train", folder / "tiny.yaml", "--run-dir", copy, "--overwrite", "--set", change, code=code)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != "run.lock"} == before


def test_a_failed_start_does_not_claim_the_directory(trained, tmp_path, capsys):
    folder, _ = trained
    call_cli(
        capsys,
        "train",
        folder / "tiny.yaml",
        "--run-dir",
        tmp_path / "r",
        "--set",
        "algo_kwargs.dataset={path: no.npz}",
        code=3,
    )
    call_cli(capsys, "train", folder / "tiny.yaml", "--run-dir", tmp_path / "r")
    (tmp_path / "mine").mkdir()
    shutil.copy(folder / "tiny.yaml", tmp_path / "mine" / "config.yaml")
    check_one_line(
        call_cli(capsys, "train", folder / "tiny.yaml", "--run-dir", tmp_path / "mine", "--resume", "auto", code=2),
        "not from a run",
    )


def test_resume_of_a_lone_checkpoint_and_of_one_member(trained, tmp_path, capsys):
    folder, _ = trained
    oldest = sorted((folder / "run" / "checkpoints").glob("step-*"))[0]
    lone = shutil.copytree(oldest, tmp_path / "lone")
    done = json.loads(call_cli(capsys, "resume", lone, "--run-dir", tmp_path / "on", "--json").stdout)
    assert done["step"] == 120
    final = load_checkpoint(folder / "run" / "checkpoints" / "step-000000120").tensors
    again = load_checkpoint(tmp_path / "on" / "checkpoints" / "step-000000120").tensors
    assert all(torch.equal(value, again[name]) for name, value in final.items())
    call_cli(capsys, "resume", lone, "--member", "1", "--run-dir", tmp_path / "one", "--json")
    one = load_checkpoint(tmp_path / "one" / "checkpoints" / "step-000000120")
    assert one.state["seeds"] == [1]
    for name, value in one.learner_tensors.items():
        assert torch.allclose(value[0], final[name][1], rtol=1e-3, atol=1e-4), name
    call_cli(capsys, "resume", lone, "--member", "7", code=2)
    check_one_line(call_cli(capsys, "resume", lone, "--run-dir", tmp_path / "one", code=2), "already holds a run")
    shutil.rmtree(tmp_path / "on" / "checkpoints")
    check_one_line(call_cli(capsys, "resume", tmp_path / "on", code=4), "there is no checkpoint")


@pytest.mark.parametrize(
    ("lock", "holder"),
    [
        (
            '{"host": "lab3", "pid": 12, "since": "2026-08-01T10:00:00+02:00"}',
            "process 12 on lab3 since 2026-08-01 08:00:00 UTC;",
        ),
        (
            '{"host": "\\u001b[31m", "pid": 12, "since": "2026-08-01T10:00:00+00:00"}',
            r"process 12 on '\x1b[31m' since 2026-08-01 10:00:00 UTC;",
        ),
        ('{"pid": "', "another process;"),
    ],
)
def test_a_busy_run_directory_exits_7_and_says_who_holds_it(trained, tmp_path, capsys, lock, holder):
    folder, _ = trained
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "run.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.write(lock)
        handle.flush()
        done = call_cli(capsys, "train", folder / "tiny.yaml", "--run-dir", tmp_path / "run", code=7)
    check_one_line(done, f"is in use by {holder} wait for it or choose another --run-dir")


def test_a_closed_pipe_and_a_bare_terminal_are_no_fault():
    shell = f"{' '.join(command('list'))} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell],
        env=environment(TERM="dumb", LANG="C", COLUMNS="20"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "algorithms\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words", [[], ["train"], ["list"], ["data"], ["data", "convert"]], ids=lambda words: "-".join(words) or "top"
)
def test_help_loads_no_schema_and_nothing_heavy(words):
    printed, loaded = loading([*words, "--help"])
    assert not {"torch", "numpy", "gymnasium", "yaml", "rl_training.config.shared_knobs"} & loaded
    assert not [
        name for name in loaded if name.startswith(("rl_training.experiment", "rl_training.data", "rl_training.runtime"))
    ]
    known = {"": "train resume finetune evaluate predict list data", "data": "inspect doctor convert mix split filter"}
    for name in known.get(" ".join(words), "--json --debug").split():
        assert name in printed


def loading(words):
    """What a command prints, and the modules that it loads."""
    code = f"import sys; from rl_training.cli import run; run({words!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([*command()[:1], "-c", code], env=environment(), capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_version_tells_what_a_bug_report_needs_and_loads_no_torch():
    printed, loaded = loading(["--version"])
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, {platform.platform()}"
    assert printed == f"rl-training {rl_training.__version__} ({versions})\n"
    assert not {"torch", "numpy", "yaml"} & loaded


def test_debug_shows_the_traceback(tmp_path, capsys):
    assert run(["evaluate", str(tmp_path / "absent"), "--debug"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_programmer_errors_are_not_hidden(tmp_path, monkeypatch):
    def broken(*_arguments, **_options):
        raise RuntimeError("a bug")

    monkeypatch.setattr("rl_training.config.loading.load_config", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run(["train", "iql/pendulum"])


@pytest.mark.parametrize(("text", "seeds"), [("0,1,2", [0, 1, 2]), ("0..3", [0, 1, 2, 3]), ("5", [5])])
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1..", "3..1", "1,,2", "0..99999"])
def test_bad_seeds(text):
    with pytest.raises(ConfigError, match="must look like"):
        parse_seeds(text)


def test_of_many_starts_at_once_one_wins(finished, tmp_path):
    """The lock is the kernel's, so it is also free again after a kill."""
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(run_values()))
    arguments = command("train", tmp_path / "c.yaml", "--run-dir", tmp_path / "run")
    racers = [
        subprocess.Popen(arguments, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(3)
    ]
    codes = sorted(racer.wait(timeout=120) for racer in racers)
    for racer in racers:
        racer.stderr.close()
    assert codes[0] == 0
    assert set(codes[1:]) <= {2, 7}  # busy, or already finished
    alone = finished().run_dir / "metrics.jsonl"
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == alone.read_bytes()
    assert os.listdir(tmp_path / "run" / "checkpoints") != []


def test_an_online_run_from_the_shell(tmp_path, capsys):
    (tmp_path / "sac.yaml").write_text(yaml.safe_dump(run_values("sac")))
    done = call_cli(capsys, "train", tmp_path / "sac.yaml", "--run-dir", tmp_path / "run")
    assert "env step 120: mean return" in done.stderr
    report = json.loads(call_cli(capsys, "evaluate", tmp_path / "run", "--episodes", "2", "--json").stdout)
    assert (report["step"], report["env_step"]) == (112, 120)
    assert "120 environment steps and 112 gradient steps" in call_cli(capsys, "evaluate", tmp_path / "run").stdout
    (action,) = json.loads(call_cli(capsys, "predict", tmp_path / "run", "--obs", "[1.0, 0.0, 0.0]").stdout)
    assert -2.0 <= action <= 2.0
    more = json.loads(call_cli(capsys, "resume", tmp_path / "run", "--json").stdout)
    assert (more["step"], more["env_step"]) == (112, 120)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["dataset"] is None
    assert record["phases"] == [{"name": "online", "from_step": 112, "from_env_step": 120}]
    shutil.rmtree(tmp_path / "run" / "replay")
    check_one_line(call_cli(capsys, "resume", tmp_path / "run", code=4), "replay")
    assert call_cli(capsys, "predict", tmp_path / "run", "--obs", "[1.0, 0.0, 0.0]").stdout  # needs the checkpoint alone
