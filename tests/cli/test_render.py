"""`rl-training render`: the episodes of `evaluate` as a file, and what is printed of them."""

import json

import gymnasium
import pytest
from PIL import Image

import rl_training
from tests.drawing import Dial, registered
from tests.helpers import call_cli

SEEDS = [4, 5, 6]


@pytest.fixture(autouse=True)
def _env():
    with registered("Dial-v0", Dial, max_episode_steps=9):
        yield


@pytest.fixture
def run_dir(finished):
    return finished("iql", SEEDS).run_dir


def test_returns_are_those_that_evaluate_prints(run_dir, tmp_path, capsys):
    shared = ("--env", "Dial-v0", "--episodes", 2)
    measured = json.loads(call_cli(capsys, "evaluate", run_dir, *shared, "--json").stdout)
    out = tmp_path / "all.gif"
    report = json.loads(call_cli(capsys, "render", run_dir, *shared, "--members", "all", "--out", out, "--json").stdout)
    assert [row["seed"] for row in report["members"]] == SEEDS
    assert [value for row in report["members"] for value in row["returns"]] == measured["returns"]
    assert [value for row in report["members"] for value in row["lengths"]] == measured["lengths"]
    assert (report["out"], report["bytes"], report["cut"]) == (str(out), out.stat().st_size, False)
    with Image.open(out) as gif:
        assert gif.size == (report["width"], report["height"]) == (3 * 48 + 2 * 2, 16 + 32)
    again = tmp_path / "again.gif"
    call_cli(capsys, "render", run_dir, *shared, "--members", "0,1,2", "--out", again)
    assert again.read_bytes() == out.read_bytes()


def test_what_is_printed(run_dir, tmp_path, capsys):
    more = ("--env", "Dial-v0", "--out", tmp_path / "a.gif")
    done = call_cli(capsys, "render", run_dir, *more, "--member", 1, "--episodes", 2, "--max-steps", 1, "--fps", 60)
    lines = done.stdout.splitlines()
    assert lines[0] == "iql on Dial-v0 after 120 gradient steps"
    assert lines[1].startswith("member 1 seed 5: episode 1: return -3.")
    assert lines[1].endswith("in 1 steps")
    assert lines[3:5] == [
        "an episode was left before its end (--max-steps), so its return is that of its first steps",
        "a frame is 2 steps: 60 steps per second are more than a file needs",
    ]
    assert lines[5].startswith(f"{tmp_path / 'a.gif'}: 34 frames, 30 per second, 48x32, ")
    assert len(lines) == 6


def test_the_best_member_is_shown_by_default(run_dir, tmp_path, capsys):
    model = rl_training.IQL.load(run_dir, device="cpu")
    out = tmp_path / "a.gif"
    report = json.loads(call_cli(capsys, "render", run_dir, "--env", "Dial-v0", "--out", out, "--json").stdout)
    assert [row["member"] for row in report["members"]] == [model.policy.best_member()]
    found = model.render(out, env_id="Dial-v0", overwrite=True)
    assert found.evaluation.returns.tolist() == [row["returns"] for row in report["members"]]
    assert found.evaluation.returns[0, 0] == model.evaluate(1, env_id="Dial-v0")["returns"][found.members[0]]


def test_an_environment_of_the_user_s_own_with_arguments(run_dir, tmp_path, capsys):
    module = tmp_path / "workshop_of_dials.py"
    module.write_text(
        "import gymnasium\n"
        "from tests.drawing import Dial\n"
        "class Sized(Dial):\n"
        "    def __init__(self, size=1, render_mode=None):\n"
        "        super().__init__(render_mode)\n"
        "        self.size = size\n"
        "    def render(self):\n"
        "        return super().render().repeat(self.size, axis=0)\n"
        "gymnasium.register('Sized-v0', entry_point=Sized, max_episode_steps=9)\n"
    )
    more = ("--import", module, "--env", "Sized-v0", "--env-kwargs", "{size: 3}", "--out", tmp_path / "a.gif", "--json")
    try:
        report = json.loads(call_cli(capsys, "render", run_dir, *more).stdout)
    finally:
        gymnasium.registry.pop("Sized-v0", None)
    assert (report["env_id"], report["width"], report["height"]) == ("Sized-v0", 48, 96)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--member", "1", "--members", "all"], "--member and --members exclude each other"),
        (["--members", "some"], "--members 'some': must be `all`, or numbers from 0, such as 0,2,5"),
        (["--members", "1,1"], "members = [1, 1] is not legal: must be `all`, or different members, 0 to 2"),
        (["--members", "0,3"], "member = 3 is not legal: must be an integer from 0 to 2"),
        (["--fps", "0"], "fps = 0.0 is not legal: must be a number from 0.1 to 10000"),
        (["--fps", "nan"], "fps = nan is not legal"),
        (["--width", "1"], "width = 1 is not legal: must be an integer from 32 to 8192"),
        (["--max-steps", "0"], "max_steps = 0 is not legal"),
        (["--episodes", "0"], "episodes = 0 is not legal"),
        (["--out", "a.avi"], "a.avi: an animation is a .gif or a .mp4 file"),
        (["--env", "Dail-v0"], "unknown environment 'Dail-v0'. Did you mean `Dial-v0`?"),
    ],
)
def test_faults_are_one_line(run_dir, tmp_path, capsys, options, words):
    done = call_cli(capsys, "render", run_dir, "--env", "Dial-v0", "--out", tmp_path / "a.gif", *options, code=2)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
