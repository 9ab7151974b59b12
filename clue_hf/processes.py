"""The processes of this run: one, or as many as accelerate launch or torchrun started."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from .errors import UserError


Item = TypeVar("Item")
Result = TypeVar("Result")
#: Numbers the calls of `share_work`, which all processes make in the same order.
_calls = count()


def process_state() -> PartialState:
    """Which process this is, of how many, on which device. Several without an accelerator talk through the CPU."""
    return PartialState(cpu=not torch.accelerator.is_available())


def leave_processes() -> None:
    """
    Ends the group of processes, before this one exits: a thread of the group that still frees a tensor while Python is
    taken down would abort it. Not after an error, since another process may wait for this one.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def on_main_process(compute: Callable[[], Result]) -> Result:
    """Runs a function on the main process only; all processes get its result, or raise its `UserError`."""
    answer: list[Any] = [None, None]
    if process_state().is_main_process:
        try:
            answer[0] = compute()
        except UserError as error:
            answer[1] = error
    result, failure = broadcast_object_list(answer)
    if failure is not None:
        raise failure
    return result


def share_work(items: Sequence[Item], work: Callable[[Item], Result]) -> Iterator[Result]:
    """
    Works through items that all processes have: each takes the next one as soon as it is free, so that none waits for
    a slower one. The main process gets every result as it is finished, in any order, or raises what another process
    raised; the others get none.
    """
    state = process_state()
    if state.num_processes == 1:
        yield from map(work, items)
        return
    store = torch.distributed.PrefixStore(
        f"clue_hf/work/{next(_calls)}", torch.distributed.distributed_c10d._get_default_store()
    )
    received = own = 0
    while (number := store.add("taken", 1) - 1) < len(items):
        if state.is_main_process:
            yield work(items[number])
            own += 1
            while store.check([f"result/{received}"]):
                yield _receive(store, received)
                received += 1
        else:
            _deliver(store, work, items[number])
    if state.is_main_process:
        for late in range(received, len(items) - own):
            yield _receive(store, late)


def _deliver(store: torch.distributed.Store, work: Callable[[Item], Any], item: Item) -> None:
    """Sends what the work gives to the main process, an error too."""

    def send(*answer: Any) -> None:
        store.set(f"result/{store.add('delivered', 1) - 1}", pickle.dumps(answer))  # type: ignore[arg-type] # bytes do

    try:
        result = work(item)
    except Exception as error:
        send(None, error)
        raise
    send(result, None)


def _receive(store: torch.distributed.Store, number: int) -> Any:
    result, failure = pickle.loads(store.get(f"result/{number}"))  # waits until it is there
    store.delete_key(f"result/{number}")
    if failure is not None:
        raise failure
    return result
