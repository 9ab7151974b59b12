from types import SimpleNamespace

import pytest
import torch

from clue_hf.experiments import costs
from clue_hf.experiments.costs import StepTimer, cost_unit


class Clocks:
    """Those of the wall and of the processor, which go on only when they are told to."""

    def __init__(self):
        self.wall, self.processor = 100.0, 10.0

    def perf_counter(self):
        return self.wall

    def process_time(self):
        return self.processor

    def wait(self, seconds):
        self.wall += seconds

    def spend(self, seconds):
        self.wall += seconds
        self.processor += seconds


@pytest.fixture
def clocks(monkeypatch):
    monkeypatch.setattr(costs, "time", Clocks())
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    return costs.time


def steps_with(timer, doings):
    timer.on_epoch_begin(None, None, None)
    for do in doings:
        timer.on_step_begin(None, None, None)
        do()
        timer.on_step_end(None, None, None)
    timer.on_epoch_end(None, None, None)


def test_waiting_counts_by_the_wall_and_not_by_the_processor(clocks):
    timer = StepTimer()
    timer.trainer = SimpleNamespace(in_plain_phase=False)
    steps_with(timer, [lambda: clocks.wait(0.2), lambda: clocks.spend(0.1), lambda: clocks.wait(0.3)])
    times = timer.times()
    assert times.seconds_per_step == pytest.approx(0.2)  # the median
    assert times.step_cost == 0
    assert times.epoch_cost == pytest.approx(0.1)
    assert times.peak_memory > 0
    assert cost_unit() == "minutes of processor time"


def test_what_comes_after_plain_training_counts(clocks):
    timer = StepTimer()
    timer.trainer = SimpleNamespace(in_plain_phase=True)
    steps_with(timer, [lambda: clocks.spend(0.02)] * 3)
    assert timer.times().step_cost == pytest.approx(0.02)  # plain training all along
    timer.trainer.in_plain_phase = False
    steps_with(timer, [lambda: clocks.spend(0.1)])
    assert timer.times().step_cost == pytest.approx(0.1)
    assert timer.times().epoch_cost == pytest.approx(0.1)
