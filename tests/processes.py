"""Processes forked from one that has imported the libraries, which takes ten seconds each time; and free ports."""

import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing import forkserver

import pytest


SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["preloaded"])


@cache
def start_server():
    """Once; it looks for what it imports where the tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        forkserver.ensure_running()


def _child(function, arguments, environment, folder, stdout, log):
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor if stdout is None else stdout.fileno(), 1)
    os.dup2(descriptor, 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(function(*arguments))


class Forked:
    """
    What `subprocess.Popen` offers, for a function of an importable module whose result is the exit code. What the
    libraries read from the environment when they are imported is that of the tests. What it writes is added to a
    `log`, where there is one.
    """

    def __init__(self, function, *arguments, env=None, cwd=".", log=None):
        receiver, sender = (None, None) if log else SERVER.Pipe(duplex=False)
        if log is None:
            descriptor, log = tempfile.mkstemp()
            os.close(descriptor)
        self._log = os.path.abspath(log)
        everything = (function, arguments, dict(os.environ if env is None else env), str(cwd), sender, self._log)
        start_server()
        self._process = SERVER.Process(target=_child, args=everything)
        self._process.start()
        self.pid, self.stdout = self._process.pid, None
        if receiver is not None:
            sender.close()
            self.stdout = os.fdopen(os.dup(receiver.fileno()))
            receiver.close()

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def send_signal(self, number):
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout=None):
        """The exit code; `None` where it has not ended by then."""
        self._process.join(timeout)
        return self.returncode

    def communicate(self, timeout=300):
        """What it has written to both streams; killed where it takes longer."""
        timer = threading.Timer(timeout, self.kill)
        timer.start()
        with self.stdout:
            output = self.stdout.read()
        self._process.join()
        timer.cancel()
        with open(self._log) as errors:
            return output, errors.read()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def on_two_processes(function, *arguments, timeout=1200):
    """Calls a function in both processes of a group, as torchrun does."""
    group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
             "ACCELERATE_USE_CPU": "true"}  # fmt: skip
    processes = [
        Forked(function, *arguments, env={**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout)
        assert process.returncode == 0, errors[-3000:]


def _agent(endpoint, function, arguments):
    """What torchrun does on one of two machines, for one process that is forked instead of started anew."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    settings = {"rdzv_backend": "c10d", "rdzv_endpoint": endpoint, "local_addr": "127.0.0.1", "run_id": "two nodes"}
    config = LaunchConfig(2, 2, 1, start_method="fork", max_restarts=0, monitor_interval=0.1, **settings)
    elastic_launch(config, function)(*arguments)


def on_two_nodes(function, *arguments, timeout=1200):
    """Calls a function in the one process of each of two machines, which find each other through an address."""
    endpoint = f"127.0.0.1:{free_port()}"
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
    agents = [Forked(_agent, endpoint, function, arguments, env=environment) for _ in range(2)]
    for agent in agents:
        _, errors = agent.communicate(timeout)
        assert agent.returncode == 0, errors[-3000:]


def run_command(words, needed="", missing=""):
    """`clue-hf`, which imports some modules first and finds others missing."""
    from clue_hf.cli.main import main

    for name in needed.split():
        import_module(name)
    sys.modules.update(dict.fromkeys(missing.split()))
    return main(words)


def run_script(path, *words):
    """What `python path words` does; the exit code."""
    sys.argv = [str(path), *words]
    runpy.run_path(str(path), run_name="__main__")


def run_on_two_processes(words, needed="", missing=""):
    """Runs `clue-hf` with some words on two processes."""
    on_two_processes(run_command, words, needed, missing)
