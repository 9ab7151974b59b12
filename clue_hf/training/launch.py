"""Starting a command again, on several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from .signals import taking


# set for the processes of a launched command, which must not launch again
LAUNCHED = "CLUE_HF_LAUNCHED"
# so many seconds may the step at hand and its checkpoint take when all are asked to end; torch gives them 30
PATIENCE = 600


def must_launch(num_processes: int) -> bool:
    """Whether this is the one process that has to start the others."""
    return num_processes > 1 and LAUNCHED not in os.environ and "WORLD_SIZE" not in os.environ


def launch(name: str, argv: Sequence[str], num_processes: int, accelerate_config: str | None = None) -> int:
    """Runs `clue-hf NAME ARGV` on several processes: through accelerate where it has a config file, else torchrun."""
    if accelerate_config:
        launcher = ["accelerate.commands.launch", "--config_file", accelerate_config]
        launcher += ["--num_processes", str(num_processes)]
    else:
        launcher = ["torch.distributed.run", "--standalone", f"--nproc_per_node={num_processes}"]
    environment = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // num_processes)),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(PATIENCE),
        **os.environ,
        LAUNCHED: "1",
    }
    command = [sys.executable, "-m", *launcher, "-m", "clue_hf.cli.main", name, *argv]
    return _run(command, environment)


def _run(command: list[str], environment: dict[str, str]) -> int:
    """
    Runs a launcher to its end. What this process is asked to do the launcher is asked too, which tells its workers:
    once, because a second signal would end its waiting for them. In a session of its own it is not asked by the
    terminal as well.
    """
    process: subprocess.Popen[bytes] | None = None
    asked = 0

    def forward(number: int, frame: Any) -> None:
        nonlocal asked
        if not asked:
            asked = number
            if process is not None:
                process.send_signal(number)

    names = ("SIGTERM", "SIGINT", "SIGHUP")  # not all systems have the last
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores some
    with taking(handled, forward, lambda: asked > 0):
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        if asked:  # while it was started
            process.send_signal(asked)
        code = process.wait()
    return 128 + asked if asked and code else code
