"""A real SLURM on this machine: controller and node daemons of its own, under other ports and in another folder."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "setpriv")
PLACES = ("/usr/sbin", "/opt/slurm/bin")

CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
KillWait=5
"""


def missing_programs():
    """Programs of SLURM that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]


def search_path():
    return os.pathsep.join([os.environ.get("PATH", ""), *PLACES])


def free_ports(count):
    bound = [socket.socket() for _ in range(count)]
    for one in bound:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in bound]
    for one in bound:
        one.close()
    return ports


class Cluster:
    """Daemons of as many nodes as there are names, each with four processors that are not there.

    Each ends with this process, however that ends.
    """

    def __init__(self, folder: Path, nodes=("n1", "n2")):
        self.folder, self.nodes = folder, nodes
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": search_path()}
        # Nodes of this cluster are names without an address.
        self.variables["MASTER_ADDR"] = "127.0.0.1"
        self._daemons = []

    def start(self):
        self._write_files()
        munge = [f"--{name}={self.folder}/munge.{end}" for name, end in (("socket", "socket"), ("pid-file", "pid"))]
        munge += [f"--{name}={self.folder}/munge.{end}" for name, end in (("key-file", "key"), ("seed-file", "seed"))]
        self._begin("munged", "--foreground", "--force", *munge, f"--log-file={self.folder}/munge.log")
        self._wait((self.folder / "munge.socket").exists, "munged")
        self._begin("slurmctld", "-D")
        for node in self.nodes:
            self._begin("slurmd", "-D", "-N", node)
        self._wait(lambda: self.run("sinfo", "-h", "-o", "%t %D").stdout.strip() == f"idle {len(self.nodes)}", "nodes")

    def _write_files(self):
        (self.folder / "controller").mkdir()
        for node in self.nodes:
            (self.folder / node).mkdir()
        host, (control, *ports) = socket.gethostname().partition(".")[0], free_ports(1 + len(self.nodes))
        lines = [CONF.format(host=host, control=control, user=getpass.getuser(), folder=self.folder)]
        lines += [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=500"
            for node, port in zip(self.nodes, ports, strict=True)
        ]
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
        (self.folder / "slurm.conf").write_text("\n".join(lines))
        second = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        plugin = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n" if second else "CgroupPlugin=cgroup/v1\n"
        (self.folder / "cgroup.conf").write_text(plugin)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)

    def _begin(self, *command):
        with (self.folder / f"{command[0]}.out").open("a") as said:
            # Also where this process is killed, nothing is left.
            words = ["setpriv", "--pdeathsig", "TERM", *command]
            self._daemons.append(subprocess.Popen(words, env=self.environment(), stdout=said, stderr=said))

    def environment(self, **more):
        inside = ("SLURM_", "LOCAL_RANK")  # of a job that this process is itself in
        return {k: v for k, v in os.environ.items() if not k.startswith(inside)} | self.variables | more

    def run(self, *command, timeout=60, **options):
        """Runs a program of SLURM to its end."""
        options = {"env": self.environment(), "capture_output": True, "text": True} | options
        return subprocess.run(command, timeout=timeout, check=False, **options)

    def _wait(self, happened, name, timeout=60):
        end = time.monotonic() + timeout
        while not happened():
            ended = [one.args[3] for one in self._daemons if one.poll() is not None]
            if ended or time.monotonic() > end:
                said = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.out"))
                raise RuntimeError(f"{name} did not come in {timeout} s; ended: {ended}\n{said}")
            time.sleep(0.1)

    def stop(self):
        """Ends jobs, then daemons; waits for each."""
        if len(self._daemons) > 1:
            self.run("scancel", "--signal=KILL", "--user", getpass.getuser())
            end = time.monotonic() + 20
            while self.run("squeue", "-h").stdout.strip() and time.monotonic() < end:
                time.sleep(0.2)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons = []
