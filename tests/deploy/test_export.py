"""`rl-training export`, `export_policy` and `load_export`: what is written, what is refused."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from rl_training import CheckpointError, ConfigError, Policy, export_policy, load_export
from rl_training.deploy import standalone
from tests.envs.own_environments import Nested
from tests.helpers import call_cli, environment, run_cli, small_arrays, tiny_run

pytest.importorskip("onnxruntime")


@pytest.fixture
def run(finished):
    return finished("iql", seeds=[0, 1]).run_dir


@pytest.fixture
def exported(run, tmp_path):
    return export_policy(run, tmp_path / "out").path


def test_from_the_shell(run, tmp_path):
    out = tmp_path / "made" / "here"
    done = run_cli("export", run, "--format", "onnx", "--out", out, "--max-change", "5/s", "--dt", "0.1", "--flag-outside")
    assert "checked: 2,000 observations" in done.stdout
    assert "latency" in done.stdout
    assert {file.name for file in out.iterdir()} == {"policy.onnx", "card.md", "card.json", "manifest.json"}
    card = json.loads((out / "card.json").read_text())
    assert card["interface"]["inputs"] == ["observation", "last_action"]
    assert card["interface"]["outputs"] == ["action", "outside"]
    assert card["interface"]["actions"][0]["max_change"] == pytest.approx(0.5)
    assert card["policy"]["member"] == Policy.load(run).best_member()
    text = (out / "card.md").read_text()
    assert "Pendulum-v1" in text
    where = f"n {card['data']['rows']:,} rows of the data of the training (those it learned from included)"
    assert f"O{where} it is " in text
    assert card["concerns"]  # of a hardly trained policy; training had other figures, of held-out rows
    assert all(concern.startswith(f"o{where}: ") for concern in card["concerns"])
    assert f"warning: o{where}: " in done.stderr
    action, outside = load_export(out).predict([0.5, 0.0, 99.0], [0.0])
    assert abs(action[0]) <= 0.5
    assert outside == 1


@pytest.mark.parametrize("member", [0, 1])
@pytest.mark.parametrize("kind", ["numpy", "onnx"])
def test_a_member_read_back(run, tmp_path, member, kind):
    made = export_policy(run, tmp_path / "out", format=kind, member=member)
    rows = np.random.Generator(np.random.Philox(1)).normal(size=(50, 3)).astype(np.float32)
    wanted = Policy.load(run, device="cpu").predict(rows, member=member)
    loaded = load_export(made.path)
    np.testing.assert_allclose(loaded.predict(rows), wanted, atol=4e-5)
    np.testing.assert_allclose(loaded.predict(rows[0]), wanted[0], atol=4e-5)


def test_json(run, tmp_path, capsys):
    done = call_cli(capsys, "export", run, "--out", tmp_path / "x", "--json")
    card = json.loads(done.stdout)
    assert card["check"]["largest_difference"] <= card["check"]["tolerance"] == 1e-5
    assert card["interface"]["actions"][0]["on_nan"] is None
    assert "every action is NaN" in (tmp_path / "x" / "card.md").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--format", "matlab"], "must be one of numpy, onnx, torch, c"),
        (["--max-change", "5/s"], "--dt SECONDS"),
        (["--max-change", "5"], "must be such as 5/s"),
        (["--max-change", "-5/s", "--dt", "1"], "must be such as 5/s"),
        (["--max-change", "motor=5/s", "--dt", "1"], "there is no action `motor`"),
        (["--max-change", "5/s", "--dt", "nan"], "--dt nan"),
        (["--max-change", "1/h", "--dt", "0.01"], "float32 cannot keep"),
        (["--max-change", "300/min", "--dt", "1"], "limits nothing"),
        (["--max-change", "1/step", "--max-change", "action 0=2/step"], "given twice"),
        (["--range", "0:1", "--range", "action 0 = 0:1"], "given twice"),
        (["--dt", "1"], "only --max-change needs"),
        (["--range", "0:9"], "can only narrow"),
        (["--range", "1:0"], "LOW:HIGH"),
        (["--range", "action 0=x:1"], "LOW:HIGH"),
        (["--on-nan", "stop"], "must be last, nan"),
        (["--on-nan", "[0, 1]"], "a JSON list of 1 numbers"),
        (["--on-nan", "[7]"], "outside -2 to 2"),
        (["--on-nan", '{"pump": 1}'], "must be last, nan"),
        (["--member", "2"], "0 to 1"),
        (["--data", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_wrong_options(run, tmp_path, capsys, options, told):
    code = 3 if options[0] == "--data" else 2
    done = call_cli(capsys, "export", run, "--out", tmp_path / "x", *options, code=code)
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_an_existing_path_is_kept(run, exported, capsys):
    before = (exported / "card.json").read_bytes()
    done = call_cli(capsys, "export", run, "--out", exported, code=2)
    assert "already exists" in done.stderr
    assert (exported / "card.json").read_bytes() == before


def test_data_gives_the_range(run, tmp_path, capsys):
    arrays = small_arrays(action_dim=1)
    np.savez(tmp_path / "other.npz", **arrays)
    done = call_cli(capsys, "export", run, "--out", tmp_path / "x", "--data", tmp_path / "other.npz", "--flag-outside")
    assert "other data than that of the training" in done.stderr
    card = load_export(tmp_path / "x").card
    assert "other.npz" in card["data"]["ranges and figures from"]
    low = [one["seen"][0] for one in card["interface"]["observations"]]
    np.testing.assert_allclose(low, arrays["observations"].min(axis=0), rtol=1e-6)
    np.savez(tmp_path / "wide.npz", **small_arrays(observation_dim=5, action_dim=1))
    done = call_cli(capsys, "export", run, "--out", tmp_path / "y", "--data", tmp_path / "wide.npz", code=3)
    assert "5 observations, the policy 3" in done.stderr


def test_data_in_other_units_is_refused(tmp_path, capsys, monkeypatch):
    np.savez(tmp_path / "log.npz", **small_arrays(action_dim=1))
    source = {"path": str(tmp_path / "log.npz"), "action_low": [-2.0], "action_high": [2.0]}
    tiny_run(tmp_path / "run", algo_kwargs={"dataset": source}, env_id=None)
    call_cli(capsys, "export", tmp_path / "run", "--out", tmp_path / "ok")
    arrays = small_arrays(action_dim=1)
    arrays["observations"] += np.float32(273.15)
    np.savez(tmp_path / "kelvin.npz", **arrays)
    given = ["export", tmp_path / "run", "--out", tmp_path / "x"]
    done = call_cli(capsys, *given, "--data", tmp_path / "kelvin.npz", code=3)
    assert "check the units" in done.stderr
    np.savez(tmp_path / "log.npz", **arrays)  # the data of the run itself, changed since
    done = call_cli(capsys, *given)
    assert "ranges and figures are those of the checkpoint, since the data of the run has changed" in done.stderr
    low = [one["seen"][0] for one in load_export(tmp_path / "x").card["interface"]["observations"]]
    assert max(low) < 0.0  # not those in Kelvin
    call_cli(capsys, "export", tmp_path / "run", "--out", tmp_path / "y", "--flag-outside")
    assert load_export(tmp_path / "y").card["interface"]["outputs"] == ["action", "outside"]
    monkeypatch.setattr("rl_training.api.policy.Policy.recorded_range", None)  # as in an older checkpoint
    done = call_cli(capsys, "export", tmp_path / "run", "--out", tmp_path / "z")
    assert "has changed since the training, so the card has no ranges" in done.stderr
    assert "not known" in (tmp_path / "z" / "card.md").read_text()
    call_cli(capsys, "export", tmp_path / "run", "--out", tmp_path / "w", "--flag-outside", code=2)


@pytest.mark.parametrize("kind", ["numpy", "onnx"])
def test_the_last_action_must_be_given(run, tmp_path, kind):
    made = export_policy(run, tmp_path / "x", format=kind, max_change="0.5/step", on_nan=[1.0])
    loaded = load_export(made.path)
    with pytest.raises(ConfigError, match="pass last_action"):
        loaded.predict([1.0, 0.0, 0.0])
    assert loaded.predict([1.0, np.nan, 0.0], [0.0]) == pytest.approx(0.5)
    assert loaded.predict([1.0, np.nan, 0.0], [np.nan]) == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="3 numbers"):
        loaded.predict([1.0, 0.0], [0.0])
    assert "0.5/step" in (made.path / "card.md").read_text()


def test_unknown_limits_in_python(run, tmp_path):
    with pytest.raises(ConfigError, match="Did you mean `max_change`"):
        export_policy(run, tmp_path / "x", max_chnage="5/s")


def test_a_changed_card_is_refused(exported):
    text = (exported / "card.json").read_text()
    (exported / "card.json").write_text(text.replace('"on_nan": null', '"on_nan": 1.25'))
    with pytest.raises(CheckpointError, match="card.json"):
        load_export(exported)


@pytest.mark.parametrize("name", ["policy.npz", "policy.py", "card.md", "manifest.json"])
def test_a_cut_file_is_refused(exported, name):
    content = (exported / name).read_bytes()
    (exported / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=name):
        load_export(exported)


def test_an_added_file_is_refused(exported):
    (exported / "numpy.py").write_text("raise SystemExit")
    with pytest.raises(CheckpointError, match="numpy.py"):
        load_export(exported)


def test_code_is_verified_but_not_run(run, tmp_path):
    made = export_policy(run, tmp_path / "c", format="c", on_nan=[0.0], ranges="-1:1")
    loaded = load_export(made.path)
    with pytest.raises(ConfigError, match="never executed here"):
        loaded.predict([1.0, 0.0, 0.0])


def test_a_wrong_shape_is_refused_by_the_lines_that_are_shipped(exported):
    policy = standalone.Policy(exported / "policy.npz")
    assert policy(np.zeros((2, 5, 3))).shape == (2, 5, 1)
    with pytest.raises(ValueError, match="3 numbers"):
        policy(np.zeros(6))


def test_the_shipped_lines_are_few(exported):
    """Forty were asked for; all activations, norms, candidates and rules take a few more."""
    text = re.sub(r'^ *""".*?"""$', "", (exported / "policy.py").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len([line for line in text.splitlines() if line.strip()]) < 55


@pytest.mark.parametrize("limits", [{}, {"max_change": "0.5/step", "flag_outside": True}])
@pytest.mark.parametrize("kind", ["numpy", "onnx", "torch", "c"])
def test_the_example_of_the_card_runs_without_the_package(run, tmp_path, kind, limits):
    made = export_policy(run, tmp_path / "out", format=kind, **limits)
    text = re.search(r"```(?:c|python)\n(.*?)```", (made.path / "card.md").read_text(), re.DOTALL)[1]
    command = [sys.executable, "example.py"]
    if kind == "c":
        flags = re.search(r"cc (-std=c99 .*) \*/", text)[1].replace("main.c", "example.c").split()
        (made.path / "example.c").write_text(text)
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", *flags], cwd=made.path, check=True)
        command = [str(made.path / "a.out")]
    else:
        guard = "\nimport sys\nassert 'rl_training' not in sys.modules\n"
        (made.path / "example.py").write_text(text + guard)
    done = subprocess.run(command, cwd=made.path, env={**environment(), "PYTHONPATH": ""}, capture_output=True, check=True)
    got = float(re.search(rb"-?[0-9.]+(?:e-?[0-9]+)?", done.stdout.replace(b"tensor", b""))[0])
    mean = [one["mean"] for one in made.card["interface"]["observations"]]
    assert got == pytest.approx(float(Policy.load(run).predict(mean)[0]), abs=2e-3)


HOSTILE = ("Außentemp [°C]", 'Druck "Kessel" (Pa)', "100% */ offen?", "m³/s\nzweite Zeile", "<b>|konst|</b>")


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """A run on a CSV log with names and scales as plants have them: constant columns, computed ones, no environment."""
    folder = tmp_path_factory.mktemp("plant")
    draw, rows = np.random.Generator(np.random.Philox(1)), 200
    table = {name: draw.normal(size=rows) * scale for name, scale in zip(HOSTILE, (10, 1e5, 1, 1e-6, 0), strict=True)}
    table |= {"Ventil %": draw.uniform(0.1, 37.5, rows), "Pumpe": draw.uniform(-12.3, 0.7, rows), "Halte": np.full(rows, 5)}
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({**table, "r": draw.normal(size=rows), "Lauf": np.arange(rows) // 20}).to_csv(folder / "log.csv")
    columns = {
        "observations": [*HOSTILE, {"F": f"`{HOSTILE[0]}` * 1.8 + 32"}],
        "actions": ["Ventil %", "Pumpe", "Halte"],
        **{"reward": "r", "episode": "Lauf"},
    }
    source = {"path": str(folder / "log.csv"), "columns": columns}
    tiny_run(folder / "run", algo_kwargs={"dataset": source}, env_id=None)
    return folder / "run"


@pytest.mark.parametrize("kind", ["numpy", "onnx", "torch", "c"])
def test_a_plant_with_difficult_names(plant, tmp_path, kind):
    made = export_policy(plant, tmp_path / "x", format=kind, ranges="Ventil %=0.5:30", flag_outside=True)
    assert made.card["check"]["largest_difference"] <= 1e-5
    text = (made.path / "card.md").read_text()
    assert f"F = `{HOSTILE[0]}` * 1.8 + 32" in text
    assert "<b>" not in text
    assert "zweite Zeile |" in text  # in its cell
    assert "log.csv" in text
    assert [one["name"] for one in load_export(made.path).card["interface"]["observations"]] == [*HOSTILE, "F"]


@pytest.mark.parametrize("kind", ["numpy", "onnx"])
def test_observations_by_name(plant, tmp_path, kind):
    pandas = pytest.importorskip("pandas")
    loaded = load_export(export_policy(plant, tmp_path / "x", format=kind, on_nan=[1.0, 0.5, 5.0]).path)
    values = dict(zip([*HOSTILE, "F"], (3.0, 2e4, 0.5, 1e-6, 0.0, 40.0), strict=True))
    wanted = loaded.predict(list(values.values()))
    frame = pandas.DataFrame([values])[[*HOSTILE[::-1], "F"]]  # another order
    for given in (values, [values], frame):
        np.testing.assert_array_equal(np.reshape(loaded.predict(given), -1), wanted)
    np.testing.assert_array_equal(loaded.predict({**values, "F": np.nan}), np.float32([1.0, 0.5, 5.0]))
    with pytest.raises(ConfigError, match="Pumpe"):
        loaded.predict({**values, "Pumpe": 1.0})
    with pytest.raises(ConfigError):
        loaded.predict(["a", "b"])


@pytest.mark.parametrize("kind", ["numpy", "onnx", "torch", "c"])
def test_nested_observations_are_flattened(tmp_path, kind):
    """Online, without data and without normalisation, from a Dict of boxes."""
    tiny_run(tmp_path / "run", "sac", env_id="Tests/Nested-v0", total_timesteps=20, eval_interval=20)
    made = export_policy(tmp_path / "run", tmp_path / "x", format=kind)
    names = [one["name"] for one in made.card["interface"]["observations"]]
    assert names[0] == "goal.0"
    assert "pose.angle[1]" in names
    assert made.card["interface"]["largest"] == 1e15
    assert made.card["check"]["largest_difference"] <= 1e-5
    if kind in ("numpy", "onnx"):
        seen = Nested().reset()[0]
        wanted = Policy.load(tmp_path / "run").predict(seen)
        np.testing.assert_allclose(load_export(made.path).predict(seen), wanted, atol=2e-5)
