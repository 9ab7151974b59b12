"""Logits divided by a temperature that is in the weights, against those of the model as it was."""

import copy

import pytest
import torch
from helpers import make_batch, make_model
from torch import nn

from clue_hf.errors import UserError
from clue_hf.models.divided_logits import LAST_NORMS, check_divisible, divide_logits


UNTIED = [("t5", {"tie_word_embeddings": False}), ("llama", {"tie_word_embeddings": False})]
TYPES = [(name, {}) for types in LAST_NORMS for name in types]


def make_uneven(kind, **settings):
    """A model whose weights and biases of norms are not all 1 and 0."""
    model = make_model(kind, **settings).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "ln_" in name:
                weight.add_(torch.randn(weight.shape) / 2)
    return model


@pytest.mark.parametrize(("kind", "settings"), [*TYPES, *UNTIED])
@pytest.mark.parametrize("temperature", [0.56, 2.7])
def test_logits_are_divided_and_greedy_texts_stay(kind, settings, temperature):
    model, batch = make_uneven(kind, **settings), make_batch(kind)
    divided = copy.deepcopy(model)
    divide_logits(divided, temperature)
    with torch.no_grad():
        before, after = model(**batch).logits, divided(**batch).logits
        assert (after * temperature - before).abs().max() < 1e-5 * (before.max() - before.min())
        assert not torch.allclose(after, before, rtol=1e-2)
        prompt = {name: batch[name][:, :4] for name in ("input_ids", "attention_mask")}
        texts = [
            one.generate(**prompt, max_new_tokens=8, do_sample=False, num_beams=1, pad_token_id=0)
            for one in (model, divided)
        ]
    assert torch.equal(*texts)


def test_a_bias_of_the_output_layer_is_divided():
    model, batch = make_uneven("llama", tie_word_embeddings=False), make_batch("llama")
    model.lm_head.bias = nn.Parameter(torch.randn(model.config.vocab_size))
    with torch.no_grad():
        before = model(**batch).logits
        divide_logits(model, 3.0)
        torch.testing.assert_close(3 * model(**batch).logits, before, rtol=1e-4, atol=1e-4)


def test_models_that_are_not_known_and_norms_of_another_form_are_refused():
    with pytest.raises(UserError, match="a gemma2 model multiplies by 1 \\+ weight"):
        divide_logits(make_model("gemma2"), 2.0)
    with pytest.raises(UserError, match="not known which weights to scale in a bloom model"):
        check_divisible("bloom")
    model, gemma = make_model("llama"), make_model("gemma2")
    model.model.norm = gemma.model.norm
    with pytest.raises(UserError, match="is not of the form"):
        divide_logits(model, 2.0)
