"""The claims of docs/method.md, against autograd through the library's own functions in float64."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from clue_hf.functional import GRADIENTS, calibration_gap, clue_loss, compute_loss_func, error_and_entropy


pytest.importorskip("matplotlib")
DOCS = Path(__file__).parents[1] / "docs"
ALPHAS = (1.0, 0.9, 0.5, 0.1, 0.0)


@pytest.fixture(scope="module")
def plots():
    spec = importlib.util.spec_from_file_location("method_plots", DOCS / "method_plots.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def draw():
    return torch.Generator().manual_seed(0)


def normal(draw, *shape):
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def expected(logits, q, alpha, form="both"):
    """E_q[clue_loss], with one row per possible label."""
    error, entropy = error_and_entropy(logits.expand(len(q), -1), torch.arange(len(q)))
    return (q * clue_loss(error, entropy, alpha, form)).sum()


def gradient(logits, q, alpha, form):
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(expected(logits, q, alpha, form), logits)[0]


def entropy_of(p):
    return -(p * p.log()).sum()


def varentropy(p):
    return (p * (p.log() + entropy_of(p)) ** 2).sum()


def gap_of(p, q):
    return -(q * p.log()).sum() - entropy_of(p)


def family(p, vocabulary):
    """Logits of the distribution whose token 0 has probability p and whose other tokens are equal."""
    rest = ((1 - p) / (vocabulary - 1)).log().expand(vocabulary - 1)
    return torch.cat([p.log().reshape(1), rest])


class TestBoth:
    @pytest.mark.parametrize("alpha", ALPHAS)
    def test_closed_form_and_its_slope(self, plots, alpha):
        q = torch.tensor(plots.truth()[0])
        for value in (0.01, 1 / plots.V, 0.3, 0.6, 0.95):
            p = torch.tensor(value, dtype=torch.float64, requires_grad=True)
            loss = expected(family(p, plots.V), q, alpha)
            slope = torch.autograd.grad(loss, p)[0] * value * (1 - value)
            assert loss.item() == pytest.approx(plots.expected_loss(value, alpha), rel=1e-10, abs=1e-12)
            assert slope.item() == pytest.approx(plots.slope(value, alpha), rel=1e-9, abs=1e-12)

    def test_optima(self, plots):
        assert [round(plots.minima(alpha)[0], 3) for alpha in (1, 0.9, 0.5)] == [0.6, 0.488, 0.078]
        assert plots.minima(0)[0] == pytest.approx(1 / plots.V)
        assert all(
            plots.slope(1 / plots.V, alpha) == pytest.approx(alpha * (1 / plots.V - plots.Q0)) for alpha in ALPHAS
        )

    @pytest.mark.parametrize("alpha", [0.9, 0.7, 0.5])
    def test_optimum_of_the_family_is_the_optimum_of_all_logits(self, plots, draw, alpha):
        q = torch.tensor(plots.truth()[0])
        best = torch.tensor(plots.minima(alpha)[0], dtype=torch.float64)
        assert gradient(family(best, plots.V), q, alpha, "both").abs().max() < 1e-10
        for _ in range(3):
            logits = (2 * normal(draw, plots.V)).requires_grad_()
            search = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

            def closure(logits=logits, search=search):
                search.zero_grad()
                loss = expected(logits, q, alpha)
                loss.backward()
                return loss

            search.step(closure)
            assert logits.softmax(0)[0].item() == pytest.approx(best.item(), abs=1e-4)

    def test_square_is_variance_plus_squared_gap(self, draw):
        logits, q = normal(draw, 9), normal(draw, 9).softmax(0)
        p = logits.softmax(0)
        variance = (q * p.log() ** 2).sum() - (q * p.log()).sum() ** 2
        torch.testing.assert_close(expected(logits, q, 0.0), variance + gap_of(p, q) ** 2)
        torch.testing.assert_close(expected(q.log(), q, 0.0), varentropy(q))  # what a perfect model pays
        assert expected(torch.zeros_like(logits), q, 0.0) < 1e-25

    @pytest.mark.parametrize("alpha", ALPHAS)
    def test_pushes_a_perfect_model_like_an_entropy_bonus(self, draw, alpha):
        q = normal(draw, 9).softmax(0)
        logits = q.log().requires_grad_()
        bonus = torch.autograd.grad(-2 * (1 - alpha) * entropy_of(logits.softmax(0)), logits)[0]
        torch.testing.assert_close(gradient(q.log(), q, alpha, "both"), bonus)

    def test_large_vocabulary_prefers_a_wrong_token(self, plots):
        q, size = plots.truth(1000, 0.6, groups=3)
        p0, p1, rest = plots.distribution(plots.lowest([np.array([3.0, 7.0, 0.0])], q, size, 0.8), size)[0].tolist()
        assert p1 > p0
        labels = torch.tensor([q[0]] + [q[1]] * 999)
        wrong = expected(torch.tensor([p0, p1] + [rest] * 998), labels, 0.8)
        grid = torch.logspace(-3.5, -0.01, 200, dtype=torch.float64)
        assert wrong < min(
            plots.loss(np.array([z[0], z[1], z[1]]), q, size, 0.8) for z in (family(p, 1000) for p in grid)
        )


class TestUncertainty:
    @pytest.mark.parametrize("alpha", ALPHAS)
    def test_truth_is_stationary(self, draw, alpha):
        for _ in range(5):
            q = (3 * normal(draw, 13)).softmax(0)
            assert gradient(q.log(), q, alpha, "uncertainty").abs().max() < 1e-14

    @pytest.mark.parametrize("alpha", ALPHAS)
    def test_no_other_point_is(self, draw, alpha):
        for _ in range(5):
            p, q = ((2 * normal(draw, 13)).softmax(0) for _ in range(2))
            product = gradient(p.log(), q, alpha, "uncertainty") @ p.log()
            torch.testing.assert_close(product, gap_of(p, q) * (alpha + 2 * (1 - alpha) * varentropy(p)))

    def test_jacobian(self, draw):
        alpha, q, other = 0.3, normal(draw, 7).softmax(0), normal(draw, 7)

        def differentiated(logits, step=1e-5):  # by hand: autograd would not see what was detached
            shifts = step * torch.eye(7, dtype=torch.float64)
            ahead, behind = ([gradient(logits + s, q, alpha, "uncertainty") for s in x] for x in (shifts, -shifts))
            return (torch.stack(ahead, 1) - torch.stack(behind, 1)) / (2 * step)

        v = q * (q.log() + entropy_of(q))
        at_truth = alpha * (q.diag() - torch.outer(q, q)) + 2 * (1 - alpha) * torch.outer(v, v)
        torch.testing.assert_close(differentiated(q.log()), at_truth, rtol=1e-6, atol=1e-8)
        rates = torch.linalg.eigvalsh(at_truth)
        assert rates[0].abs() < 1e-12  # the shift of all logits
        assert rates[1] > 1e-3
        elsewhere = differentiated(other)
        assert (elsewhere - elsewhere.t()).abs().max() > 0.01  # not the gradient of any function

    @pytest.mark.parametrize("alpha", [0.9, 0.1])
    def test_flow_reaches_the_truth(self, plots, alpha):
        q, size = plots.truth()
        end, time = plots.flow(plots.RANDOM[0], q, size, alpha, "uncertainty")
        assert time < 2e4
        assert plots.divergence(end, q, size) < 1e-9

    def test_without_the_error_wrong_distributions_are_stationary_too(self, draw):
        q = normal(draw, 9).softmax(0)
        direction = q.log() + normal(draw, 9)  # less certain than its error when flat, more certain when sharp
        wrong = direction * brentq(lambda sharpness: gap_of((sharpness * direction).softmax(0), q).item(), 0.05, 5)
        assert gradient(wrong, q, 0.0, "uncertainty").abs().max() < 1e-8
        assert (wrong.softmax(0) - q).abs().max() > 0.02
        assert gradient(torch.zeros_like(wrong), q, 0.0, "uncertainty").abs().max() < 1e-14

    def test_same_loss_which_prefers_the_uniform_distribution(self, plots):
        q = torch.tensor(plots.truth()[0])
        truth, uniform = (expected(z, q, 0.5, "uncertainty") for z in (q.log(), torch.zeros_like(q)))
        assert uniform < truth
        torch.testing.assert_close(truth, expected(q.log(), q, 0.5, "both"))


class TestError:
    @pytest.mark.parametrize("alpha", ALPHAS)
    def test_slope_of_the_family(self, plots, alpha):
        q = torch.tensor(plots.truth()[0])
        for value in (0.01, 1 / plots.V, 0.3, 0.6, 0.95):
            p = torch.tensor(value, dtype=torch.float64, requires_grad=True)
            slope = torch.autograd.grad(expected(family(p, plots.V), q, alpha, "error"), p)[0] * value * (1 - value)
            assert slope.item() == pytest.approx(plots.error_slope(value, alpha), rel=1e-9, abs=1e-12)

    @pytest.mark.parametrize("alpha", ALPHAS)
    def test_pushes_a_perfect_model_as_both_does(self, draw, alpha):
        q = normal(draw, 9).softmax(0)
        torch.testing.assert_close(gradient(q.log(), q, alpha, "error"), gradient(q.log(), q, alpha, "both"))

    @pytest.mark.parametrize("alpha", [0.99, 0.9, 0.5, 0.1])
    def test_rests_at_a_flatter_distribution_than_both(self, plots, alpha):
        (q, size), rest = plots.truth(), plots.error_rest(alpha)
        assert 1 / plots.V < rest < plots.minima(alpha)[0]
        at_rest = family(torch.tensor(rest, dtype=torch.float64), plots.V)
        assert gradient(at_rest, torch.tensor(q), alpha, "error").abs().max() < 1e-10
        for start in plots.RANDOM[:3]:
            end = plots.flow(start, q, size, alpha, "error")[0]
            np.testing.assert_allclose(end - end[1], at_rest - at_rest[1], atol=1e-3)

    def test_a_sure_right_token_gets_a_negative_weight(self):
        logits = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
        error, entropy = error_and_entropy(logits, torch.tensor([0]))
        gap = (error - entropy).item()
        for alpha, sign in ((0.9, -1), (0.1, 1)):
            assert (alpha + 2 * (1 - alpha) * gap > 0) == (sign < 0)
            slope = torch.autograd.grad(clue_loss(error, entropy, alpha, "error").sum(), logits, retain_graph=True)[0]
            assert slope[0, 0].sign() == sign


class TestSequence:
    def test_two_denominators(self, draw):
        logits, labels = normal(draw, 3, 4, 5), torch.tensor([[0, 1, 2, 3], [4, -100, -100, -100], [-100] * 4])
        error, entropy = error_and_entropy(logits, labels)
        squares = [(error[0].mean() - entropy[0].mean()) ** 2, (error[1, 0] - entropy[1, 0]) ** 2]
        expectation = 0.7 * error.sum() / 5 + 0.3 * sum(squares) / 2
        loss = compute_loss_func(alpha=0.7, level="sequence")({"logits": logits}, labels)
        torch.testing.assert_close(loss, expectation)

    def test_noise_falls_with_the_length(self, draw):
        logits, q, length = normal(draw, 3), normal(draw, 3).softmax(0), 4
        error, entropy = error_and_entropy(logits.expand(3, -1), torch.arange(3))
        texts = torch.cartesian_prod(*[torch.arange(3)] * length)
        square = (q[texts].prod(1) * (error[texts] - entropy[texts]).mean(1) ** 2).sum()
        gap = gap_of(logits.softmax(0), q)
        torch.testing.assert_close(square, (expected(logits, q, 0.0) - gap**2) / length + gap**2)

    @pytest.mark.parametrize("dependent", [False, True])
    def test_truth_is_stationary_only_for_independent_tokens(self, draw, dependent):
        first = normal(draw, 4).requires_grad_()
        second = (normal(draw, 4, 4) if dependent else normal(draw, 1, 4)).requires_grad_()
        texts = torch.cartesian_prod(torch.arange(4), torch.arange(4))
        context = texts[:, 0] if dependent else torch.zeros_like(texts[:, 0])
        probability = first.softmax(-1)[texts[:, 0]] * second.softmax(-1)[context, texts[:, 1]]
        error, entropy = error_and_entropy(torch.stack([first.expand(16, -1), second[context]], 1), texts)
        gap = calibration_gap(error, entropy, "uncertainty").mean(1)
        loss = (probability.detach() * (0.5 * error.mean(1) + 0.5 * gap**2)).sum()
        largest = max(part.abs().max() for part in torch.autograd.grad(loss, (first, second)))
        assert largest > 1e-3 if dependent else largest < 1e-15


@pytest.mark.parametrize("form", GRADIENTS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradient_of_the_fused_head(plots, draw, alpha, form):
    logits, labels = (2 * normal(draw, 6, 11)).requires_grad_(), torch.randint(11, (6,), generator=draw)
    error, entropy = error_and_entropy(logits, labels)
    found = torch.autograd.grad(clue_loss(error, entropy, alpha, form).sum(), logits)[0]
    gap, log_p = (error - entropy).detach().unsqueeze(1), logits.detach().log_softmax(-1)
    weight = 2 * (1 - alpha) * gap
    a, b = alpha + weight * (form != "uncertainty"), -weight * (form != "error")
    onehot = torch.nn.functional.one_hot(labels, 11)
    by_hand = a * (log_p.exp() - onehot) - b * log_p.exp() * (log_p + entropy.detach().unsqueeze(1))
    torch.testing.assert_close(found, by_hand)

    q, ones = normal(draw, 11).softmax(0), np.ones(11)  # and its expectation, which the figures use
    mean = plots.gradient(logits[0].detach().numpy(), q.numpy(), ones, alpha, form)
    torch.testing.assert_close(gradient(logits[0], q, alpha, form), torch.from_numpy(mean))


def test_nats(draw):
    q = normal(draw, 9).softmax(0)
    error, entropy = error_and_entropy(q.log().expand(9, -1), torch.arange(9))
    torch.testing.assert_close((q * error).sum(), entropy[0])
    assert error_and_entropy(torch.zeros(1, 21), torch.tensor([3]))[1].item() == pytest.approx(math.log(21))


@pytest.mark.parametrize("name", ["optima", "quantities", "flow", "vocabulary"])
def test_page_quotes_what_the_script_prints(plots, name):
    assert getattr(plots, f"table_of_{name}")() in (DOCS / "method.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["optimum", "landscape", "entropy"])
def test_page_shows_its_figures(name):
    assert f"images/method_{name}.png" in (DOCS / "method.md").read_text(encoding="utf-8")
    assert (DOCS / "images" / f"method_{name}.png").stat().st_size > 10_000
