#!/usr/bin/env python3
"""Runs tests as several processes under the launcher of an MPI, with worlds spread over them (spread.h).

usage: over_mpi.py MPI PROCESSES RANKS PROGRAM [ARGUMENT...]
MPI: openmpi, mpich; exit code 77: its launcher is not there. RANKS: sizes of worlds, as in 2,4, that must have been spread.
With a second --gtest_filter, which GoogleTest takes in place of the first, no sizes are asked for: the cases may have none.
Every process runs the same tests, and a failure in any of them is one. What all but the first print is shown only then.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TERM": "dumb", "COSHARD_TEST_WORLDS": "mpi"}
# Processes wait for each other on fewer cores than there are of them.
STARTS = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"], "mpich": ["mpirun.mpich"]}
TO_A_FILE_EACH = 'folder=$1; shift; exec "$@" > "$folder/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" 2>&1'


def problem_of(code, printed, ranks):
    """What is wrong with a job that ended with this exit code; None: nothing."""
    if code != 0:
        return f"exit code {code}"
    passed = [re.findall(r"^\[  PASSED  \] (\d+) tests?", text, re.MULTILINE) for text in printed]
    if len({tuple(found) for found in passed}) != 1 or not passed[0] or passed[0] == ["0"]:
        return f"tests that passed in each process: {passed}"
    spread = [re.findall(r"^worlds: (.*)", text, re.MULTILINE) for text in printed]
    if len({tuple(found) for found in spread}) != 1 or len(spread[0]) != 1:
        return f"worlds in each process: {spread}"
    missing = [size for size in ranks if f" x {size} ranks" not in spread[0][0]]
    return f"no world of {', '.join(missing)} ranks was spread: {spread[0][0]}" if missing else None


def main():
    mpi, processes, ranks, *command = sys.argv[1:]
    start = STARTS[mpi]
    if shutil.which(start[0]) is None:
        print(f"skipped: there is no {start[0]}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        job = [*start, "-n", processes, "sh", "-c", TO_A_FILE_EACH, "sh", folder, *command]
        # With a TMPDIR of its own: daemons of Open MPI that make and remove one folder at the same time may fail.
        done = subprocess.run(job, env={**os.environ, **SETTINGS, "TMPDIR": folder}, capture_output=True, text=True)
        printed = []
        for process in range(int(processes)):
            path = os.path.join(folder, str(process))
            with open(path, encoding="utf-8", errors="replace") if os.path.exists(path) else open(os.devnull) as file:
                printed.append(file.read())
    whole = sum(argument.startswith("--gtest_filter") for argument in command) < 2
    problem = problem_of(done.returncode, printed, [size for size in ranks.split(",") if size and whole])
    print(printed[0])
    if problem is None:
        return
    for process, text in enumerate(printed[1:], 1):
        print(f"---- process {process}\n{text}")
    sys.exit(f"{done.stdout}{done.stderr}{processes} processes under {start[0]}: {problem}")


main()
