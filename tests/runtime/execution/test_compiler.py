"""The compiler as a neighbour: its files lie where only the user can write, and a Ctrl-C does not reach it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rl_training.runtime.execution.compiler_cache import remember_vector_probes, use_private_cache
from rl_training.runtime.signals import stop_signals_blocked
from tests.helpers import command, environment, mode_of, run_values

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The folder that the compiler is pointed at, with the user's cache in a folder of its own."""
    monkeypatch.setenv(VARIABLE, "")  # so that whatever is set is taken back
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def chosen():
        use_private_cache()
        return Path(os.environ[VARIABLE])

    return chosen


def test_compiled_code_lies_in_the_user_s_own_cache(cache, tmp_path):
    assert cache() == tmp_path / "rl_training" / "compiled"
    assert cache().stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_is_not_used(cache, tmp_path):
    folder = tmp_path / "rl_training" / "compiled"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert cache() != folder
    assert cache().stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_followed(cache, tmp_path):
    (tmp_path / "rl_training").mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "rl_training" / "compiled").symlink_to(tmp_path / "elsewhere")
    assert cache().name not in ("compiled", "elsewhere")


def test_without_a_place_for_caches_there_is_a_folder_for_the_process(cache, tmp_path):
    (tmp_path / "rl_training").write_text("in the way")
    assert cache().name.startswith("rl_training-")


def test_what_the_user_names_is_kept(cache, monkeypatch):
    monkeypatch.setenv(VARIABLE, "/named/by/the/user")
    assert cache() == Path("/named/by/the/user")


def test_probes_of_vector_instructions_are_remembered_per_compiler_unless_they_fail(cache, monkeypatch, tmp_path):
    from torch._inductor.cpu_vec_isa import VecAVX2, VecAVX512, VecISA

    probed = []

    def probe(isa, code):
        probed.append((str(isa), code))
        return code != "bad"

    def start(compiler):
        """Ask as a new process would, with a compiler of its own."""
        monkeypatch.setenv("CXX", str(compiler))
        monkeypatch.setattr(VecISA, "check_build", probe)
        remember_vector_probes.__wrapped__()
        answers = [isa.check_build(code) for isa in (VecAVX2(), VecAVX512()) for code in ("good", "bad")]
        found, probed[:] = list(probed), []
        return answers, found

    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o700)
    cache()
    every = [(isa, code) for isa in ("avx2", "avx512") for code in ("good", "bad")]
    answers = [True, False, True, False]
    assert start(tmp_path / "one") == (answers, every)
    assert start(tmp_path / "one") == (answers, [("avx2", "bad"), ("avx512", "bad")])
    assert start(tmp_path / "other") == (answers, every)


def test_processes_started_while_stop_signals_are_blocked_do_not_get_them():
    ask = [sys.executable, "-c", "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"]
    with stop_signals_blocked():
        inside = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    after = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert "SIGINT" in inside
    assert "SIGTERM" in inside
    assert after == "[]\n"


@pytest.mark.faults
@pytest.mark.skipif(shutil.which("g++") is None or sys.platform != "linux", reason="needs g++")
def test_a_stop_for_the_whole_group_waits_for_the_compiler(tmp_path):
    """A terminal sends Ctrl-C to all of a group; here the compiler does it itself when it is first called."""
    script = tmp_path / "compiler"
    # nothing but built-in commands: some shells unblock signals when they wait for another
    script.write_text(f'#!/bin/sh\n[ -e {tmp_path}/sent ] || {{ : > {tmp_path}/sent; kill -INT 0; }}\nexec g++ "$@"\n')
    script.chmod(0o755)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(run_values(engine="compile", device="cpu")))
    done = subprocess.run(
        command("train", tmp_path / "c.yaml", "--run-dir", tmp_path / "run"),
        env=environment(CXX=str(script), **{VARIABLE: str(tmp_path / "cache")}),
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=300,
        check=False,
    )
    assert (tmp_path / "sent").exists()
    assert done.returncode == 130, done.stderr
    assert "going on with `eager`" not in done.stderr
    assert mode_of(tmp_path / "run") == "compile"
