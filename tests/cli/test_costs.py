import time
from types import SimpleNamespace

import torch

from clue_hf.experiments.costs import StepTimer, cost_unit


def spend(seconds):
    """Work that keeps the processor busy."""
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


def steps_with(timer, doings):
    timer.on_epoch_begin(None, None, None)
    for do in doings:
        timer.on_step_begin(None, None, None)
        do()
        timer.on_step_end(None, None, None)
    timer.on_epoch_end(None, None, None)


def test_waiting_counts_by_the_wall_and_not_by_the_processor(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    timer = StepTimer()
    timer.trainer = SimpleNamespace(in_plain_phase=False)
    steps_with(timer, [lambda: time.sleep(0.2)] * 3)
    times = timer.times()
    assert times.seconds_per_step >= 0.2
    assert times.step_cost < 0.1
    assert times.epoch_cost < 0.3
    assert times.peak_memory > 0
    assert cost_unit() == "minutes of processor time"


def test_what_comes_after_plain_training_counts():
    timer = StepTimer()
    timer.trainer = SimpleNamespace(in_plain_phase=True)
    steps_with(timer, [lambda: None] * 3)
    assert timer.times().step_cost < 0.05  # plain training all along
    timer.trainer.in_plain_phase = False
    steps_with(timer, [lambda: spend(0.1)])
    assert timer.times().step_cost >= 0.1
    assert timer.times().epoch_cost >= 0.1
