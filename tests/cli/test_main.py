"""What all commands do."""

import pytest
import torch

from clue_hf.cli.main import run
from clue_hf.errors import UserError


@pytest.fixture
def joined():
    """A command that joins a group of processes, of this one alone."""

    def command(argv):
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        if argv:
            raise UserError(argv[0])
        return 0

    yield command
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_a_command_leaves_its_group_of_processes(joined):
    assert run(joined, []) == 0
    assert not torch.distributed.is_initialized()


def test_after_an_error_the_others_may_wait_and_the_group_stays(joined, capsys):
    assert run(joined, ["no such model"]) == 2
    assert "clue-hf: error: no such model" in capsys.readouterr().err
    assert torch.distributed.is_initialized()
