"""An exported header at work: compiled with what this package wrote, and asked for actions."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl_training.deploy.program import Floats, Program
from rl_training.errors import ExportError

WARNINGS = ("-std=gnu99", "-O2", "-Wall", "-Wextra", "-Werror")
_TIMED_CALLS = 2000
_MAIN = """\
#include <stdio.h>
#include <time.h>
#include "policy.h"
int main(int count, char **arguments)
{
    float row[POLICY_OBSERVATIONS + POLICY_ACTIONS], action[POLICY_ACTIONS];
    struct timespec begin, end;
    const int calls = count > 1 ? %(calls)d : 1;
    while (fread(row, sizeof(float), %(width)s, stdin) == %(width)s) {
        int outside = 0;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int k = 0; k < calls; ++k) {
            __asm__ volatile("" : : "r"(row), "r"(action) : "memory"); /* or calls with the same row would become one */
            outside = policy_act(row%(last)s, action);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        const double taken = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) * 1e-3;
        const float flag = calls > 1 ? (float)(taken / calls) : (float)outside;
        fwrite(action, sizeof(float), POLICY_ACTIONS, stdout);
        fwrite(&flag, sizeof(float), 1, stdout);
    }
    (void)arguments;
    return 0;
}
"""


class CompiledHeader:
    """A policy.h, compiled where there is a compiler; one process for each call, so its latency is measured in C."""

    def __init__(self, path: Path, program: Program, flags: tuple[str, ...] = WARNINGS) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise FileNotFoundError("cc")
        self._safety, self._actions = program.safety, len(program.middle)
        self._folder = tempfile.TemporaryDirectory(prefix="rl-training-export-")
        self._file = Path(self._folder.name) / "policy"
        last = ", row + POLICY_OBSERVATIONS" if program.safety.uses_last else ""
        width = "POLICY_OBSERVATIONS + POLICY_ACTIONS" if program.safety.uses_last else "POLICY_OBSERVATIONS"
        source = self._file.with_suffix(".c")
        source.write_text(_MAIN % {"width": width, "last": last, "calls": _TIMED_CALLS}, encoding="utf-8")
        command = [compiler, *flags, f"-I{path.parent}", str(source), "-o", str(self._file), "-lm"]
        code, _, told = _started(command)
        if code != 0:
            raise ExportError(f"{path.name} does not compile: {(told.strip().splitlines() or ['no reason given'])[0]}")

    def __call__(self, observations: Floats, last: Floats) -> tuple[Floats, NDArray[np.int64] | None]:
        """Return actions and columns outside."""
        found, flag = self._run(observations, last)
        counted = self._safety.outside(observations)  # what is replaced on NaN says -1, and has no count
        return found, None if counted is None else np.where(flag < 0, counted, flag).astype(np.int64)

    def latency(self, observations: Floats, last: Floats) -> dict[str, float]:
        """Return the median and the 99 % quantile of the time of one call, in microseconds, over observations."""
        taken = self._run(observations[:100], last[:100], "time")[1]
        median, slow = np.quantile(taken, (0.5, 0.99))
        return {"median_us": round(float(median), 3), "p99_us": round(float(slow), 3)}

    def _run(self, observations: Floats, last: Floats, *arguments: str) -> tuple[Floats, Floats]:
        rows = np.concatenate((observations, last), axis=1) if self._safety.uses_last else observations
        code, result, told = _started([str(self._file), *arguments], rows.tobytes())
        found = np.frombuffer(result, dtype=np.float32)
        if code != 0 or len(found) != len(rows) * (self._actions + 1):
            raise ExportError(f"the compiled policy.h failed: {told[:200]}")
        table = found.reshape(len(rows), self._actions + 1)
        return table[:, :-1], table[:, -1]


def _started(command: Sequence[str], data: bytes = b"") -> tuple[int, bytes, str]:
    """The exit code of a program, what it wrote, and what it complained about."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:  # noqa: S603 - the compiler, our program
        result, told = process.communicate(data)
    return process.returncode, result, told.decode(errors="replace")
