import math

import pytest
import torch
import torch.nn.functional as F
from helpers import make_batch, make_model
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.functional import GRADIENTS, clue_loss, compute_loss_func, error_and_entropy, sequence_means


numbers = st.floats(0, 20, allow_nan=False)


@given(numbers, numbers, st.floats(0, 1))
def test_clue_loss_is_the_formula(error, uncertainty, alpha):
    e, u = torch.tensor([error], dtype=torch.float64), torch.tensor([uncertainty], dtype=torch.float64)
    expected = alpha * error + (1 - alpha) * (error - uncertainty) ** 2
    assert clue_loss(e, u, alpha).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    for form in ("uncertainty", "error"):
        assert clue_loss(e, u, alpha, form).item() == clue_loss(e, u, alpha).item()


@pytest.mark.parametrize("clue_gradient", GRADIENTS)
def test_alpha_one_is_the_error_itself_even_where_the_square_overflows(clue_gradient):
    error = torch.tensor([1.0, 1e38])
    assert clue_loss(error, torch.zeros(2), 1, clue_gradient) is error


@pytest.mark.parametrize(
    ("clue_gradient", "a", "b"),
    [("both", 0.7 + 0.6 * 1.5, -0.6 * 1.5), ("uncertainty", 0.7, -0.6 * 1.5), ("error", 0.7 + 0.6 * 1.5, None)],
)
def test_gradient_of_each_form(clue_gradient, a, b):
    error = torch.tensor(2.0, requires_grad=True)
    uncertainty = torch.tensor(0.5, requires_grad=True)
    clue_loss(error, uncertainty, 0.7, clue_gradient).backward()
    assert error.grad.item() == pytest.approx(a)
    assert uncertainty.grad is None if b is None else uncertainty.grad.item() == pytest.approx(b)


def test_error_and_entropy_against_torch():
    logits, labels = torch.randn(3, 5, 7, dtype=torch.float64), torch.randint(0, 7, (3, 5))
    labels[0, 2] = labels[2, 4] = -100
    error, entropy = error_and_entropy(logits, labels)
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(3, 5)
    torch.testing.assert_close(error, expected)
    kept = labels != -100
    torch.testing.assert_close(entropy[kept], torch.distributions.Categorical(logits=logits).entropy()[kept])
    assert (entropy[~kept] == 0).all()


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_entropy_stays_between_zero_and_its_maximum(scale):
    logits = (scale * torch.randn(20, 9)).requires_grad_()
    error, entropy = error_and_entropy(logits, torch.randint(0, 9, (20,)))
    assert entropy.min() >= -1e-6
    assert entropy.max() <= math.log(9) + 1e-5
    clue_loss(error, entropy, 0.5).sum().backward()
    assert logits.grad.isfinite().all()


def test_impossible_columns_and_a_vocabulary_of_one():
    logits = torch.tensor([[1.0, 2.0, -math.inf]], requires_grad=True)
    error, entropy = error_and_entropy(logits, torch.tensor([1]))
    without = error_and_entropy(logits[:, :2], torch.tensor([1]))
    torch.testing.assert_close((error, entropy), without)
    clue_loss(error, entropy, 0.5).sum().backward()
    assert logits.grad.isfinite().all()
    assert error_and_entropy(torch.zeros(1, 1), torch.tensor([0])) == (torch.zeros(1), torch.zeros(1))


def test_half_precision_is_reduced_in_float32():
    logits = torch.randn(4, 50).bfloat16()
    error, entropy = error_and_entropy(logits, torch.arange(4))
    assert error.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close((error, entropy), error_and_entropy(logits.float(), torch.arange(4)))


def test_sequence_means_leave_empty_sequences_at_zero():
    means = sequence_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 2]), 4)
    assert means.tolist() == [2.0, 0.0, 5.0, 0.0]


def test_compute_loss_func_is_the_token_mean_of_the_formula(kind):
    model, batch = make_model(kind), make_batch(kind)
    labels = batch.pop("labels")
    shift = kind == "gpt2"
    if not shift:
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
    outputs = model(**batch)
    logits = outputs.logits[:, :-1] if shift else outputs.logits
    targets = labels[:, 1:] if shift else labels
    error, entropy = error_and_entropy(logits, targets)
    expected = clue_loss(error, entropy, 0.6).sum() / (targets != -100).sum()
    torch.testing.assert_close(compute_loss_func(0.6, shift=shift)(outputs, labels), expected)
    torch.testing.assert_close(
        compute_loss_func(0.6, shift=shift)(outputs, labels, num_items_in_batch=7),
        expected * (targets != -100).sum() / 7,
    )


def test_compute_loss_func_at_the_sequence_level():
    logits, labels = torch.randn(3, 4, 5, dtype=torch.float64), torch.randint(0, 5, (3, 4))
    labels[0, 1:], labels[2] = -100, -100  # one token, four tokens, an empty target
    error, entropy = error_and_entropy(logits, labels)
    squares = [(error[0, 0] - entropy[0, 0]) ** 2, (error[1].mean() - entropy[1].mean()) ** 2]
    expected = 0.6 * error.sum() / 5 + 0.4 * sum(squares) / 2
    torch.testing.assert_close(compute_loss_func(0.6, level="sequence")({"logits": logits}, labels), expected)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_compute_loss_func_of_the_error_weights_the_cross_entropy(level):
    logits = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 1, 2, 3], [4, 4, -100, -100]])
    loss = compute_loss_func(0.6, level=level, clue_gradient="error")({"logits": logits}, labels)
    error, entropy = error_and_entropy(logits, labels)
    gap = (error - entropy).detach()
    if level == "sequence":  # every token of a sequence has the weight of its mean gap, by the number of its tokens
        gap = gap.sum(-1, keepdim=True) / torch.tensor([[4], [2]]) * 6 / 2 / torch.tensor([[4], [2]])
    weighted = ((0.6 + 2 * 0.4 * gap) * error).sum() / 6
    torch.testing.assert_close(*(torch.autograd.grad(value, logits)[0] for value in (loss, weighted)))


def test_compute_loss_func_notices_labels_that_do_not_line_up():
    model, batch = make_model("bart"), make_batch("bart", rows=2)
    labels = batch.pop("labels")
    with pytest.raises(ValueError, match="DataCollatorForSeq2Seq"):  # BART makes decoder inputs from the source
        compute_loss_func()(model(**batch), labels)
    batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
    with pytest.raises(ValueError, match="leave out shift=True"):
        compute_loss_func(shift=True)(model(**batch), labels)
    causal = make_batch("gpt2")
    with pytest.warns(UserWarning, match="set shift=True"):
        compute_loss_func()(make_model("gpt2")(input_ids=causal["input_ids"]), causal["labels"])


@pytest.mark.parametrize("settings", [{"alpha": 1.5}, {"alpha": float("nan")}, {"alpha": "0.5"}, {"level": "word"}])
def test_compute_loss_func_refuses_bad_settings(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        compute_loss_func(**settings)
