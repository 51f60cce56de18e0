#!/usr/bin/env python3
"""The quickstart as several processes of a Slurm step: what it prints is what threads print.

usage: slurm_test.py MPI QUICKSTART TRAIN FAULTY_JOB      MPI: openmpi, mpich
Starts a Slurm of one node, with ports, keys and folders of its own, and stops it. Exit code 77: Slurm is not there, or may not run here.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from like_torchrun import free_port

PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo", "squeue", "scancel"]
PMI = {"openmpi": "pmix", "mpich": "pmi2"}
CONF = """\
ClusterName=coshard
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES:8
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def stop(daemon):
    """With all of its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(10)
            return


class OneNode:
    """A Slurm of this machine alone."""

    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        self.environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "TMPDIR": folder}
        self.problem = "it was not started"  # why it is not up; none: it is

    def __enter__(self):
        try:
            self.problem = self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.problem is None:
            self.end_jobs()
        for daemon in reversed(self.daemons):
            stop(daemon)

    def end_jobs(self):
        """Those of a test that failed in their middle: their processes would stay."""
        subprocess.run(["scancel", "--partition=all"], env=self.environment)
        for _ in range(100):
            if not subprocess.run(["squeue", "-h"], capture_output=True, env=self.environment).stdout:
                return
            time.sleep(0.1)

    def daemon(self, name, *arguments):
        with open(f"{self.folder}/{name}.log", "w") as log:
            self.daemons.append(subprocess.Popen([name, *arguments], stdout=log, stderr=log, env=self.environment, start_new_session=True))

    def start(self):
        folder = self.folder
        os.chmod(folder, 0o755)  # munged wants its socket to be within reach of all
        for name in ("state", "spool"):
            os.mkdir(f"{folder}/{name}")
        with open(os.open(f"{folder}/munge.key", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as key:
            key.write(os.urandom(128))
        port = free_port()
        with open(f"{folder}/slurm.conf", "w") as conf:
            conf.write(CONF.format(
                folder=folder, host=socket.gethostname().split(".")[0], cpus=os.cpu_count(), ctld_port=port, slurmd_port=port + 1,
                user=subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()))
        self.daemon("munged", "--foreground", *(f"--{what}={folder}/munge.{end}" for what, end in (
            ("socket", "sock"), ("key-file", "key"), ("pid-file", "pid"), ("seed-file", "seed"), ("log-file", "messages"))))
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D")
        return self.wait_until_idle()

    def wait_until_idle(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for daemon in self.daemons:
                if daemon.poll() is not None:
                    name = daemon.args[0]
                    with open(f"{self.folder}/{name}.log") as log:
                        return f"{name} ended: {(log.read().strip().splitlines() or ['it says nothing'])[-1]}"
            seen = subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True, env=self.environment)
            if seen.stdout.strip() == "idle":
                return None
            time.sleep(0.2)
        return "the node of Slurm is not idle after 60 s"


def run(command, environment):
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def expect(same, what, *shown):
    if not same:
        raise RuntimeError(f"{what}: " + "\n".join(str(one) for one in shown))
    print(f"ok: {what}")


def launch(node, mpi, quickstart):
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {**node.environment, **root}
    threads = run([quickstart], environment).stdout
    srun = ["srun", f"--mpi={PMI[mpi]}"]
    for count in (2, 1):
        done = run([*srun, "-n", str(count), quickstart], environment)
        expect(threads and done.stdout == threads, f"srun --mpi={PMI[mpi]} -n {count}", done)
    done = run([*srun, "-n", "2", quickstart, "--ranks", "4"], environment)
    expect("tp=4" in done.stdout and done.stdout.count("loss") == 1, "two ranks in each task", done)
    done = run(["salloc", "-n", "2", quickstart], environment)
    expect(done.stdout == threads, "an allocation alone is no job of several", done)
    done = run(["srun", "--mpi=none", "-n", "2", quickstart], environment)
    told = "SLURM_STEP_NUM_TASKS=2 and SLURM_PROCID=1, but srun was started without MPI support: start the program with srun --mpi=pmix"
    expect(done.returncode != 0 and told in done.stderr, "srun without MPI support", done)
    mpirun = {"openmpi": ["mpirun.openmpi", "--oversubscribe"], "mpich": ["mpirun.mpich"]}[mpi]
    if shutil.which(mpirun[0]):
        done = run(["salloc", "-n", "2", *mpirun, "-n", "2", quickstart], environment)
        expect(done.stdout == threads, f"{mpirun[0]} in an allocation", done)


def trains(node, mpi, train):
    def losses(*launcher):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/text", "w", encoding="ascii") as file:
                file.writelines(f"{n} times {n} is {n * n}\n" for n in range(5000))
            settings = "--layers 1 --dim 32 --heads 4 --ffn 48 --seq 32 --batch 2 --steps 3 --sample 0 --eval-blocks 1 --threads 1 --ranks 2"
            done = run([*launcher, train, "--text", f"{folder}/text", *settings.split(), "--json", f"{folder}/json"], node.environment)
            expect(done.returncode == 0, f"train, started by {launcher or 'itself'}", done)
            with open(f"{folder}/json", encoding="utf-8") as file:
                return json.load(file)["loss"]

    threads, tasks = losses(), losses("srun", f"--mpi={PMI[mpi]}", "-n", "2")
    expect(len(threads) == 3 and tasks == threads, "srun trains as threads do, bit by bit", threads, tasks)


def survive(node, mpi, faulty_job):
    """A task that is killed is named by the other one without a deadline, which is 20 s; the step fails."""
    settings = {"UCX_TLS": "posix,sysv,self", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = run(["srun", f"--mpi={PMI[mpi]}", "-n", "2", faulty_job, "1", "kill", "20", "--ranks", "2", "--timeout", "20"], {**node.environment, **settings})
    expect(done.returncode != 0 and re.search(r"error: .*rank 1, process 1 \(pid \d+ on [^)]+\) has died: ", done.stderr), "a killed task is named", done)
    grief, told, _ = (float(at) for at in re.findall(r" at ([\d.]+)", done.stdout))
    expect(told - grief < 4, f"within four seconds ({told - grief:.3f} s)", done)
    done = run(["srun", f"--mpi={PMI[mpi]}", "-n", "2", faulty_job, "1", "throw", "20", "--ranks", "2"], {**node.environment, **settings})
    expect(done.returncode != 0 and done.stderr.count("error: rank 1: disk full") == 1, "a task that throws is told of once", done)


def main():
    mpi, quickstart, train, faulty_job = sys.argv[1:5]
    for name in PROGRAMS:
        if shutil.which(name) is None:
            skip(f"there is no {name} (Debian: slurm-wlm, munge)")
    with tempfile.TemporaryDirectory() as folder, OneNode(folder) as node:
        if node.problem:
            skip(node.problem)
        launch(node, mpi, quickstart)
        trains(node, mpi, train)
        survive(node, mpi, faulty_job)


if __name__ == "__main__":
    main()
