import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from clue_hf.scorers.sampling import sampler, stream_seed


def draw(logits, seeds, **settings):
    """One draw per seed from the same logits."""
    processors = sampler(seeds, torch.device("cpu"), **settings)
    rows = torch.tensor(logits).expand(len(seeds), -1).clone()
    return processors(torch.zeros(len(seeds), 1, dtype=torch.long), rows).argmax(-1).tolist()


def test_draws_follow_the_softmax():
    logits = [0.0, 1.0, 2.0, -1.0]
    drawn = draw(logits, [stream_seed(0, [row, 1], 0) for row in range(4000)])
    expected = 4000 * np.exp(logits) / np.exp(logits).sum()
    assert chisquare(np.bincount(drawn, minlength=4), expected).pvalue > 0.001


@pytest.mark.parametrize(
    ("settings", "possible"), [({"top_k": 2}, {1, 2}), ({"top_p": 0.5}, {2}), ({"temperature": 0.01}, {2})]
)
def test_settings_narrow_the_choice(settings, possible):
    assert set(draw([0.0, 1.0, 2.0, -1.0], range(300), **settings)) == possible


def test_a_row_draws_the_same_in_any_batch_and_goes_on_drawing():
    logits, seeds = [0.0] * 50, [stream_seed(0, [row, 1], 1) for row in range(6)]
    together = draw(logits, seeds)
    assert together == [draw(logits, [seed])[0] for seed in seeds]
    assert len(set(together)) > 1
    processors = sampler(seeds[:1], torch.device("cpu"))
    rows = [processors(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 50)).argmax().item() for _ in range(20)]
    assert len(set(rows)) > 5


def test_a_stream_follows_from_the_seed_the_source_and_the_number_of_the_sample():
    assert stream_seed(0, [3, 4], 1) == stream_seed(0, (3, 4), 1)
    others = [stream_seed(*key) for key in ((1, [3, 4], 1), (0, [4, 3], 1), (0, [34], 1), (0, [3, 4], -1))]
    assert len({stream_seed(0, [3, 4], 1), *others}) == 5
