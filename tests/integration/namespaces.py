"""Hosts that are network namespaces of this machine, joined by links of a given rate, and jobs of MPI across them.

With two hosts the link is a veth pair, with more a bridge in a namespace of its own. Processes are those of one machine (signals reach
them), files are shared, and host names are equal. Whoever makes hosts needs to be root; why_not() says what is missing.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

LAUNCHERS = {"openmpi": "mpirun.openmpi", "mpich": "mpirun.mpich"}
LINK = "link0"  # of every host
PROMPT = 120  # seconds that a job may take to begin
AGENT = """\
#!/bin/sh
# What mpirun starts processes on another host with, in place of ssh: [OPTIONS] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
case "$1" in
%s
*) echo "there is no host $1" >&2; exit 255 ;;
esac
export TMPDIR="%s/$name" # of its own, as on a host: daemons of Open MPI that make one folder at once may fail
mkdir -p "$TMPDIR"
shift
exec ip netns exec "$name" unshare --time --monotonic "$ahead" --boottime "$ahead" --fork sh -c "$*"
"""


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def why_not(delay):
    """Why there can be no hosts here, or none with a delay between them, in a line; None: there can be."""
    for tool in ("ip", "tc", "ss"):
        if shutil.which(tool) is None:
            return f"there is no {tool} (Debian: iproute2)"
    if os.geteuid() != 0:
        return "only root may create network namespaces"
    try:
        with Hosts(2, "1gbit") as hosts:
            if delay:
                hosts.set_delay("1ms")
            return None
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {(error.stderr or '').strip() or error.returncode}"


def skip_unless_possible(mpi, delay=False):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # of a test that takes too long: hosts are removed
    if shutil.which(LAUNCHERS[mpi]) is None:
        problem = f"there is no {LAUNCHERS[mpi]}"
    else:
        problem = why_not(delay)
    if problem:
        print(f"skipped: {problem}")
        sys.exit(77)


class Hosts:
    def __init__(self, count, rate, ahead=0):
        """ahead: seconds by which the clocks of all hosts but the first are."""
        self.name = f"coshard-{uuid.uuid4().hex[:8]}"
        self.count, self.rate, self.ahead = count, rate, ahead
        self.addresses = [f"10.77.0.{host + 1}" for host in range(count)]
        self.made = []
        self.folder = tempfile.TemporaryDirectory()
        self.agent = f"{self.folder.name}/agent"

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], check=True)
        self.folder.cleanup()

    def make(self):
        for host in range(self.count):
            self.add(self.namespace(host))
        if self.count == 2:
            ip("link", "add", LINK, "netns", self.namespace(0), "type", "veth", "peer", "name", LINK, "netns", self.namespace(1))
        else:
            self.make_bridge()
        for host, address in enumerate(self.addresses):
            ip("-n", self.namespace(host), "addr", "add", f"{address}/24", "dev", LINK)
            ip("-n", self.namespace(host), "link", "set", LINK, "up")
        self.set_rate(self.rate)
        self.wait_until_up()
        cases = "\n".join(f"{address}) name={self.namespace(host)} ahead={self.ahead if host > 0 else 0} ;;" for host, address in enumerate(self.addresses))
        with open(self.agent, "w", opener=lambda path, flags: os.open(path, flags, 0o755)) as agent:
            agent.write(AGENT % (cases, self.folder.name))

    def add(self, name):
        ip("netns", "add", name)
        self.made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def make_bridge(self):
        switch = f"{self.name}-switch"
        self.add(switch)
        ip("-n", switch, "link", "add", "bridge0", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge0", "up")
        for host in range(self.count):
            ip("link", "add", LINK, "netns", self.namespace(host), "type", "veth", "peer", "name", f"port{host}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{host}", "master", "bridge0", "up")

    def wait_until_up(self):
        """A link that is set up is so a second later at most; before, UCX does not use it."""
        end = time.monotonic() + 10
        while any(self.link(host)["operstate"] != "UP" for host in range(self.count)) and time.monotonic() < end:
            time.sleep(0.02)

    def link(self, host):
        return json.loads(ip("-n", self.namespace(host), "-s", "-j", "link", "show", "dev", LINK))[0]

    def namespace(self, host):
        return f"{self.name}-{host}"

    def on(self, host, *command):
        return ["ip", "netns", "exec", self.namespace(host), *command]

    def set_rate(self, rate):
        """Of what every host sends."""
        for host in range(self.count):
            self.tc(host, "replace", "root", "handle", "1:", "tbf", "rate", rate, "burst", "256kb", "latency", "200ms")

    def set_delay(self, delay):
        """Of what every host sends. CalledProcessError: this kernel has no netem."""
        for host in range(self.count):
            self.tc(host, "add", "parent", "1:", "handle", "10:", "netem", "delay", delay, "limit", "20000")

    def tc(self, host, what, *words):
        command = ["tc", "-n", self.namespace(host), "qdisc", what, "dev", LINK, *words]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def set_link(self, host, state):
        ip("-n", self.namespace(host), "link", "set", LINK, state)

    def sent(self, host):
        """Bytes, since it was made."""
        return self.link(host)["stats64"]["tx"]["bytes"]

    def processes(self, program=""):
        """Of all hosts, that run a program of this path; without it, all."""
        pids = [int(pid) for name in self.made for pid in ip("netns", "pids", name).split()]
        return [pid for pid in pids if not program or program_of(pid) == os.path.realpath(program)]

    def pid_on(self, host, program):
        """Of the one process of this program there."""
        pids = ip("netns", "pids", self.namespace(host)).split()
        (pid,) = [int(pid) for pid in pids if program_of(pid) == os.path.realpath(program)]
        return pid

    def mpi_environment(self):
        """For either MPI: data between hosts, and on one, by TCP; processes on other hosts are started by the agent."""
        return {**os.environ, "TERM": "dumb", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_plm_rsh_agent": self.agent, "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self",
                "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_rmaps_base_mapping_policy": "slot", "OMPI_MCA_hwloc_base_binding_policy": "none",
                "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": self.agent, "UCX_TLS": "tcp,self",
                "XDG_CACHE_HOME": f"{self.folder.name}/cache"}  # the next hosts may be these by their ids, with other links

    def mpirun(self, mpi, *program, each=1):
        """Processes on all hosts, `each` on every one, started on the first."""
        hosts = ",".join(f"{address}:{each}" for address in self.addresses)
        flag = {"openmpi": "--host", "mpich": "-hosts"}[mpi]
        return self.on(0, LAUNCHERS[mpi], "-n", str(each * self.count), flag, hosts, *program)

    def coshard_run(self, coshard, mpi, *program):
        """The same with one process each, by `coshard run`."""
        return self.on(0, coshard, "run", "--mpi", mpi, "--hosts", ",".join(self.addresses), *program)


def program_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:  # it has ended
        return ""


class Job:
    """A command across hosts that runs beside the test, with stdout and stderr in files."""

    def __init__(self, hosts, command):
        self.hosts = hosts
        self.files = [tempfile.TemporaryFile() for _ in range(2)]
        self.begin = time.monotonic()
        self.started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.files[0], stderr=self.files[1],
                                        env=hosts.mpi_environment(), start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.started.poll() is None:
            os.killpg(self.started.pid, signal.SIGKILL)
            self.started.wait()
        for file in self.files:
            file.close()

    @property
    def out(self):
        return self.text(0)

    @property
    def err(self):
        return self.text(1)

    def text(self, which):
        file = self.files[which].fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def shown(self):
        return f"{' '.join(self.started.args)}\nexit code {self.started.returncode} after {time.monotonic() - self.begin:.1f} s\n{self.out}\n{self.err}"

    def wait_for(self, pattern, seconds=PROMPT):
        """Until stdout or stderr has it: the match."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            over = self.started.poll() is not None
            found = re.search(pattern, self.out + self.err)
            if found:
                return found
            if over:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in: {self.shown()}")

    def end(self, seconds=PROMPT):
        """Its exit code."""
        try:
            return self.started.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.shown()}") from None
