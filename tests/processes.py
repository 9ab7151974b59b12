"""Free ports, and a command on two processes: what torchrun does, but the libraries are imported once."""

import socket
import subprocess
import sys


TWO_PROCESSES = """
import os, sys
from importlib import import_module
from clue_hf.cli.main import main
port, needed, missing, *words = sys.argv[1:]
for name in needed.split():
    import_module(name)
sys.modules.update(dict.fromkeys(missing.split()))
os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
child = os.fork()
os.environ.update(RANK=str(int(child == 0)), LOCAL_RANK=str(int(child == 0)))
code = main(words)
if child == 0:
    os._exit(code)
sys.exit(code or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run_on_two_processes(words, needed="", missing=""):
    """Runs `clue-hf` with some words; the modules that it needs are imported before it forks, others not at all."""
    command = [sys.executable, "-c", TWO_PROCESSES, str(free_port()), needed, missing, *words]
    subprocess.run(command, check=True, timeout=300)
