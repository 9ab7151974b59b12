"""Starting a command again, on several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from ..errors import UserError


# set for the processes of a launched command, which must not launch again
LAUNCHED = "CLUE_HF_LAUNCHED"


def must_launch(num_processes: int) -> bool:
    """Whether this is the one process that has to start the others."""
    return num_processes > 1 and LAUNCHED not in os.environ and "WORLD_SIZE" not in os.environ


def launch(name: str, words: Sequence[str], num_processes: int, accelerate_config: str | None = None) -> int:
    """Runs `clue-hf NAME WORDS` on several processes: through accelerate where it has a config file, else torchrun."""
    if accelerate_config:
        if not os.path.isfile(accelerate_config):
            raise UserError(f"accelerate_config {accelerate_config!r} does not exist.")
        launcher = ["accelerate.commands.launch", "--config_file", accelerate_config]
        launcher += ["--num_processes", str(num_processes)]
    else:
        launcher = ["torch.distributed.run", "--standalone", f"--nproc_per_node={num_processes}"]
    environment = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // num_processes)),
        **os.environ,
        LAUNCHED: "1",
    }
    command = [sys.executable, "-m", *launcher, "-m", "clue_hf.cli.main", name, *words]
    return subprocess.run(command, env=environment, check=False).returncode
