"""A real SLURM for tests: a controller and two nodes as processes of this machine, all files below one folder.

No system service is touched: munge has a key and a socket of its own, and every daemon is ended by its process id.
"""

import os
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

NODES = ("node1", "node2")
_PACKAGES = ("slurm-wlm", "munge")
_DAEMONS = ("munged", "slurmctld", "slurmd")


class NoSlurmError(Exception):
    """Why it cannot be started here."""


class Slurm:
    """Started when made. `env` is the environment of commands that use it."""

    def __init__(self, folder: Path) -> None:
        _install()
        self.folder = folder
        for name in ("state", "log", "pid", "munge", *NODES):
            (folder / name).mkdir(parents=True)
        (folder / "munge").chmod(0o700)
        (folder / "slurm.conf").write_text(self._configuration())
        self.env: Mapping[str, str] = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "MASTER_ADDR": "127.0.0.1",  # the names of these nodes do not resolve
            "OMP_NUM_THREADS": "1",
        }
        try:
            self._start_munge()
            self._daemon("slurmctld", "-c")
            for node in NODES:
                self._daemon("slurmd", "-N", node)
            self._wait_for_nodes()
        except (OSError, subprocess.SubprocessError, NoSlurmError) as error:
            self.stop()
            raise NoSlurmError(f"SLURM does not start here: {error}") from error

    def stop(self) -> None:
        """End every daemon, by the process id that it wrote."""
        for file in (self.folder / "pid").glob("*.pid"):
            with suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)

    def run(self, *words: object, timeout: float = 300.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command to its end; stdout and stderr together."""
        done = subprocess.run(
            list(map(str, words)),
            env=dict(self.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, done.stdout
        return done

    def submit(self, script: str, output: Path) -> int:
        """The number of a job on both nodes, one task each."""
        options = ("-N2", "--ntasks-per-node=1", "--requeue", "--open-mode=append", f"--output={output}")
        return int(self.run("sbatch", "--parsable", *options, "--wrap", script).stdout.split(";")[0])

    def wait(self, job: int, *, until: str = "", timeout: float = 300.0) -> dict[str, str]:
        """What `scontrol` knows of a job once it is over, or in the state `until`."""
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            shown = self.run("scontrol", "show", "job", job).stdout
            facts = dict(word.split("=", 1) for word in shown.split() if "=" in word)
            over = facts["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
            if facts["JobState"] == until or (over and not until):
                return facts
            time.sleep(0.5)
        raise AssertionError(f"job {job} is not over after {timeout:g} s: {facts}")

    def _configuration(self) -> str:
        host, here = socket.gethostname().split(".")[0], self.folder
        controller, *ports = _free_ports(1 + len(NODES))
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": controller,
            "SlurmUser": "root",
            "StateSaveLocation": here / "state",
            "SlurmdSpoolDir": here / "%n",
            "SlurmctldPidFile": here / "pid" / "slurmctld.pid",
            "SlurmdPidFile": here / "pid" / "%n.pid",
            "SlurmctldLogFile": here / "log" / "slurmctld",
            "SlurmdLogFile": here / "log" / "%n",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={here}/munge/socket",
            "CredType": "cred/munge",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "KillWait": 20,
            "JobRequeue": 1,
            "BatchStartTimeout": 10,  # a job that was requeued waits for this long
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        cores = os.cpu_count() or 1
        for node, port in zip(NODES, ports, strict=True):
            lines.append(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores}")
        lines.append(f"PartitionName=test Nodes={','.join(NODES)} Default=YES State=UP OverSubscribe=FORCE:4")
        return "\n".join(lines) + "\n"

    def _start_munge(self) -> None:
        own = self.folder / "munge"
        (own / "key").write_bytes(secrets.token_bytes(1024))
        (own / "key").chmod(0o400)
        own.chmod(0o711)
        files = (f"--key-file={own}/key", f"--socket={own}/socket", f"--seed-file={own}/seed")
        kept = (f"--pid-file={self.folder}/pid/munged.pid", f"--log-file={self.folder}/log/munged")
        self._daemon("munged", "--force", *files, *kept)  # a temporary folder is open to all, which munge refuses

    def _daemon(self, *words: str) -> None:
        program = shutil.which(words[0], path="/usr/sbin:/usr/bin:/sbin:/bin") or words[0]
        subprocess.run([program, *words[1:]], env=dict(self.env), check=True, timeout=60)

    def _wait_for_nodes(self) -> None:
        for _ in range(60):
            found = self.run("sinfo", "-h", "-t", "idle", "-o", "%D", check=False)
            if found.stdout.strip() == str(len(NODES)):
                return
            time.sleep(0.5)
        raise NoSlurmError(f"its nodes are not ready after 30 s; see {self.folder}/log")


def _install() -> None:
    if platform.system() != "Linux" or os.geteuid() != 0:
        raise NoSlurmError("SLURM needs Linux and root (a container of Debian or Ubuntu will do)")
    if all(shutil.which(name, path="/usr/sbin:/usr/bin") for name in _DAEMONS):
        return
    if shutil.which("apt-get") is None:
        raise NoSlurmError(f"{' and '.join(_PACKAGES)} are not installed, and there is no apt-get")
    for words in (("update",), ("install", "-y", "--no-install-recommends", *_PACKAGES)):
        done = subprocess.run(["apt-get", *words], capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise NoSlurmError(f"apt-get {words[0]} failed: {done.stderr.strip()[-200:]}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
