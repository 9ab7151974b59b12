"""The residual network for tables against its formula, written with plain functions in float64."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import AutoConfig, AutoModel, Trainer, TrainingArguments

from clue_hf.errors import UserError
from clue_hf.models.mc_dropout import Replicas, active_dropout, mc_logits
from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression


ROWS, PASSES = 5, 3
COLUMNS = {
    "both": {"num_numeric": 4, "category_sizes": [3, 6]},
    "numeric": {"num_numeric": 4},
    "categorical": {"category_sizes": [3, 6]},
}


def make_model(columns="both", **changes):
    """A small network in float64, with BatchNorms that are not the identity."""
    torch.manual_seed(0)
    small = {"category_dim": 2, "hidden_size": 12, "num_blocks": 3, "hidden_factor": 1.5, "dropout": 0.4}
    model = CLUETabularResNetForRegression(CLUETabularResNetConfig(**{**small, **COLUMNS[columns], **changes}))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean, std=0.3)
            nn.init.uniform_(module.running_var, 0.1, 0.5)
    return model.double()


def inputs_for(model, rows=ROWS):
    generator = torch.Generator().manual_seed(7)
    numeric = torch.randn(rows, model.config.num_numeric, generator=generator, dtype=model.dtype)
    columns = [torch.randint(0, size, (rows,), generator=generator) for size in model.config.category_sizes]
    return {"numeric": numeric, "categories": torch.stack(columns, 1)} if columns else {"numeric": numeric}


def by_hand(model, inputs, kept=None, pooled=0):
    """
    The outputs by the formula. `kept` has, for each layer that drops, what its input is multiplied by. With `pooled`
    passes BatchNorm is in training, and all rows are repeated where the first block first drops.
    """
    weights = dict(model.named_parameters()) | dict(model.named_buffers())

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name, x):
        mean, variance = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        if pooled:
            mean, variance = x.mean(0), ((x - x.mean(0)) ** 2).mean(0)
        return (x - mean) / (variance + 1e-5) ** 0.5 * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def dropped(name, x):
        return x * kept[name] if kept and name in kept else x

    parts = [inputs["numeric"]]
    for column in range(len(model.config.category_sizes)):
        parts.append(weights[f"embeddings.{column}.weight"][inputs["categories"][:, column]])
    x = linear("first", torch.cat(parts, 1))
    for number in range(model.config.num_blocks):
        block = f"blocks.{number}"
        inside = linear(f"{block}.linear1", norm(f"{block}.norm", x)).clamp(min=0)
        if pooled and number == 0:
            inside, x = inside.repeat(pooled, 1), x.repeat(pooled, 1)
        branch = linear(f"{block}.linear2", dropped(f"{block}.dropout", inside))
        x = x + dropped(f"{block}.residual_dropout", branch)
    return linear("head", norm("last_norm", x).clamp(min=0))


def record_masks(model):
    """What every dropout of the next pass multiplies its input by."""
    kept = {}

    def note(name):
        def hook(module, given, output):  # where the input is 0, any factor will do
            kept[name] = torch.where(given[0] == 0, 0.0, output / given[0]).detach()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(note(name))
    return kept


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(
            tensor, expected[name], rtol=1e-9, atol=1e-9, msg=lambda text, n=name: f"{n} {text}"
        )


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("variance_head", [False, True])
def test_outputs_and_gradients_by_hand(columns, variance_head):
    model = make_model(columns, variance_head=variance_head).eval()
    inputs = inputs_for(model)
    found, expected = model(**inputs).logits, by_hand(model, inputs)
    assert found.shape == (ROWS, 2 if variance_head else 1)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(found)
    gradients = gradients_of(model, (found * weights).sum())
    assert_same(gradients, gradients_of(model, (expected * weights).sum()))
    assert all(gradient.abs().max() > 1e-3 for gradient in gradients.values())  # no layer is dead


@settings(max_examples=25)
@given(
    numeric=st.integers(0, 5),
    sizes=st.lists(st.integers(1, 9), max_size=3),
    dim=st.integers(1, 4),
    width=st.integers(1, 9),
    blocks=st.integers(1, 3),
    factor=st.sampled_from([1.0, 1.5, 2.0, 3.7]),
    variance=st.booleans(),
)
def test_as_many_parameters_as_the_formula(numeric, sizes, dim, width, blocks, factor, variance):
    if not numeric and not sizes:
        numeric = 1
    model = CLUETabularResNetForRegression(
        CLUETabularResNetConfig(
            num_numeric=numeric,
            category_sizes=sizes,
            category_dim=dim,
            hidden_size=width,
            num_blocks=blocks,
            hidden_factor=factor,
            variance_head=variance,
        )
    )
    inside, outputs = math.floor(width * factor), 1 + variance
    block = 2 * width + (width + 1) * inside + (inside + 1) * width
    first = sum(sizes) * dim + (numeric + len(sizes) * dim + 1) * width
    expected = first + blocks * block + 2 * width + (width + 1) * outputs
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert model.eval()(**inputs_for(model, 2)).logits.shape == (2, outputs)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("variance_head", [False, True])
def test_saved_and_loaded_by_the_auto_classes(columns, variance_head, tmp_path):
    model = make_model(columns, variance_head=variance_head, residual_dropout=0.1).float().eval()
    model.save_pretrained(tmp_path)
    config, loaded = AutoConfig.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is CLUETabularResNetForRegression
    assert (config.num_labels, config.problem_type) == (1, "regression")
    assert config.category_sizes == model.config.category_sizes
    assert str(loaded) == str(model)  # every layer, with its rate
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    inputs = inputs_for(model)
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)
    assert torch.equal(loaded(**inputs, return_dict=False)[0], model(**inputs).logits)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("rates", [(0.4, 0.0), (0.4, 0.2), (0.0, 0.2)])
def test_all_passes_at_once_are_the_passes_one_by_one(columns, rates):
    model = make_model(columns, dropout=rates[0], residual_dropout=rates[1], variance_head=True)
    inputs, kept, seen = inputs_for(model), record_masks(model), []
    model.blocks[0].norm.register_forward_hook(lambda module, given, output: seen.append(len(output)))
    with active_dropout(model, seed=1):
        found = mc_logits(model, inputs, PASSES)
    assert found.shape == (PASSES, ROWS, 2)
    assert seen == [ROWS]  # what comes before the first dropout runs once
    assert {len(mask) for mask in kept.values()} == {PASSES * ROWS}
    assert len(kept) == 3 * sum(rate > 0 for rate in rates)
    expected = torch.stack(
        [by_hand(model, inputs, {name: mask.chunk(PASSES)[k] for name, mask in kept.items()}) for k in range(PASSES)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert all((found[a] - found[b]).abs().max() > 1e-3 for a, b in itertools.combinations(range(PASSES), 2))
    weights = torch.randn_like(found)
    assert_same(gradients_of(model, (found * weights).sum()), gradients_of(model, (expected * weights).sum()))


def test_where_the_passes_part():
    names = [name for name, _ in make_model(residual_dropout=0.1).named_modules()]
    first = [name.removeprefix("blocks.0.") for name in names if name.startswith("blocks.0.")]
    assert first == ["norm", "linear1", "replicas", "dropout", "linear2", "residual_dropout"]
    assert [name for name, m in make_model().named_modules() if isinstance(m, Replicas)] == ["blocks.0.replicas"]


def test_batch_norm_takes_the_rows_of_all_passes_in_one_update():
    model = make_model(residual_dropout=0.2).train()
    norms = {name: module for name, module in model.named_modules() if isinstance(module, nn.BatchNorm1d)}
    inputs, kept, given = inputs_for(model), record_masks(model), {}
    for name, module in norms.items():
        module.reset_running_stats()
        module.register_forward_pre_hook(lambda module, got, name=name: given.update({name: got[0].detach()}))
    found = mc_logits(model, inputs, PASSES)
    expected = by_hand(model, inputs, kept, pooled=PASSES).unflatten(0, (PASSES, ROWS))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(found)
    assert_same(gradients_of(model, (found * weights).sum()), gradients_of(model, (expected * weights).sum()))
    rows = {name: len(hidden) for name, hidden in given.items()}
    assert rows.pop("blocks.0.norm") == ROWS
    assert set(rows.values()) == {PASSES * ROWS}
    for name, module in norms.items():
        assert module.num_batches_tracked == 1
        torch.testing.assert_close(module.running_mean, 0.1 * given[name].mean(0))
        torch.testing.assert_close(module.running_var, 0.9 + 0.1 * given[name].var(0))
    with active_dropout(model):
        mc_logits(model, inputs, PASSES)
    assert {module.num_batches_tracked.item() for module in norms.values()} == {1}


def test_mean_and_variance_over_all_masks_there_are():
    model = make_model(num_blocks=1, hidden_size=4, hidden_factor=1.5)
    inputs, rate, passes = inputs_for(model), model.config.dropout, 20_000
    outputs, chances = [], []
    for mask in itertools.product([0.0, 1.0], repeat=6):
        factors = torch.tensor(mask, dtype=torch.float64).expand(ROWS, 6) / (1 - rate)
        outputs.append(by_hand(model, inputs, {"blocks.0.dropout": factors})[:, 0].detach())
        chances.append((1 - rate) ** sum(mask) * rate ** (6 - sum(mask)))
    outputs, chances = torch.stack(outputs), torch.tensor(chances, dtype=torch.float64)[:, None]
    mean = (chances * outputs).sum(0)
    variance, fourth = ((chances * (outputs - mean) ** power).sum(0) for power in (2, 4))
    with active_dropout(model, seed=0), torch.no_grad():
        found = mc_logits(model, inputs, passes)[..., 0]
    assert variance.min() > 1e-4
    assert ((found.mean(0) - mean).abs() < 4.5 * (variance / passes).sqrt()).all()
    assert ((found.var(0) - variance).abs() < 4.5 * ((fourth - variance**2) / passes).sqrt()).all()
    # the rows of an evaluation share their masks; in training every row has masks of its own
    scale = variance.sqrt() * variance.sqrt()[:, None]
    expected = (chances * (outputs - mean)).T @ (outputs - mean) / scale
    assert (torch.cov(found.T) / scale - expected).abs().max() < 0.05
    model.train()
    for module in model.modules():
        module.training = not isinstance(module, nn.BatchNorm1d)
    torch.manual_seed(0)
    found = mc_logits(model, inputs, passes)[..., 0].detach()
    assert ((found.mean(0) - mean).abs() < 4.5 * (variance / passes).sqrt()).all()
    assert (torch.cov(found.T) / scale - torch.eye(ROWS)).abs().max() < 0.05


def test_the_start_of_training():
    torch.manual_seed(0)
    model = CLUETabularResNetForRegression(CLUETabularResNetConfig(num_numeric=30, category_sizes=[500, 400]))
    for module in (*model.embeddings, model.first, model.blocks[2].linear1, model.blocks[2].linear2):
        bound = module.weight.shape[1] ** -0.5
        assert 0.98 * bound < module.weight.abs().max() <= bound
        assert module.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    hidden = model.first.bias
    assert 0.8 * 62**-0.5 < hidden.abs().max() <= 62**-0.5  # 30 numbers and two embeddings of 16
    assert torch.equal(model.last_norm.weight, torch.ones(128))
    defaults = model.config
    assert (len(model.blocks), defaults.inner_size, defaults.dropout, defaults.residual_dropout) == (4, 256, 0.3, 0.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_numeric": -1}, "`num_numeric` must be at least 0"),
        ({"category_sizes": [3, 0]}, "`category_sizes` must be positive"),
        ({"category_dim": 0}, "`category_dim` must be"),
        ({"hidden_size": 0}, "`hidden_size` must be"),
        ({"num_blocks": 0}, "`num_blocks` must be"),
        ({"hidden_factor": 0.001}, "`hidden_factor` leaves"),
        ({"dropout": 1.0}, "`dropout` must be"),
        ({"residual_dropout": -0.1}, "`residual_dropout` must be"),
    ],
)
def test_mistakes_in_the_config_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        CLUETabularResNetConfig(**{"num_numeric": 1, **wrong})


def test_a_model_without_columns():
    with pytest.raises(UserError, match="set `num_numeric` or `category_sizes`"):
        CLUETabularResNetForRegression(CLUETabularResNetConfig())


@pytest.mark.parametrize(("row", "column", "entry"), [(2, 1, 6), (0, 0, 3), (4, 1, -1)])
def test_an_entry_that_the_column_does_not_have(row, column, entry):
    model = make_model().eval()
    inputs = inputs_for(model)
    inputs["categories"][row, column] = entry
    message = (
        f"Row {row} has the entry {entry} in categorical column {column}, whose entries are 0 to {[2, 5][column]}"
    )
    with pytest.raises(UserError, match=message):
        model(**inputs)


def test_inputs_that_do_not_fit():
    model = make_model().eval()
    inputs = inputs_for(model)
    for numeric in (inputs["numeric"][:, :3], inputs["numeric"][0]):
        with pytest.raises(UserError, match="takes 4 numeric"):
            model(numeric, inputs["categories"])
    with pytest.raises(UserError, match="`categories` is missing, but .* takes 2"):
        model(inputs["numeric"])
    for categories in (inputs["categories"][:, :1], inputs["categories"][:3]):
        with pytest.raises(UserError, match="takes 2 categorical columns"):
            model(inputs["numeric"], categories)
    with pytest.raises(UserError, match="takes 0 categorical columns"):
        make_model("numeric").eval()(**inputs)


def test_no_categories_at_all_may_be_an_empty_tensor():
    model = make_model("numeric").eval()
    inputs = inputs_for(model)
    empty = torch.zeros(ROWS, 0, dtype=torch.long)
    assert torch.equal(model(**inputs, categories=empty).logits, model(**inputs).logits)


def test_one_row():
    model = make_model()
    one = {name: tensor[:1] for name, tensor in inputs_for(model).items()}
    with pytest.raises(UserError, match="dataloader_drop_last"):
        model.train()(**one)
    assert model.eval()(**one).logits.shape == (1, 1)
    with active_dropout(model):
        assert mc_logits(model, one, PASSES).shape == (PASSES, 1, 1)


def test_numbers_of_another_precision():
    model = make_model().float().eval()
    inputs = inputs_for(model)
    found = model(inputs["numeric"].double(), inputs["categories"].int()).logits
    assert torch.equal(found, model(**inputs).logits)


@pytest.mark.parametrize("columns", COLUMNS)
def test_bfloat16(columns):
    model = make_model(columns, variance_head=True, residual_dropout=0.1).float().train()
    inputs = inputs_for(model)
    with torch.autocast("cpu", torch.bfloat16):
        logits = mc_logits(model, inputs, PASSES)
    assert logits.dtype == torch.float32  # the head is not rounded
    logits.square().mean().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    model.eval()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(**inputs).logits
    exact = model(**inputs).logits
    assert 0 < (rounded - exact).abs().max() < 0.1 * exact.std()


def test_compiled():
    model = make_model().eval()
    inputs = inputs_for(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits)


def test_trained_by_transformers_own_trainer(tmp_path):
    generator = torch.Generator().manual_seed(0)
    numeric = torch.randn(64, 4, generator=generator)
    categories = torch.stack([torch.randint(0, size, (64,), generator=generator) for size in (3, 6)], 1)
    labels = numeric[:, 0] + (categories[:, 0] == 1).float()
    rows = [
        {"numeric": number, "categories": entries, "labels": label}
        for number, entries, label in zip(numeric, categories, labels, strict=True)
    ]
    model = make_model(dropout=0.1, hidden_size=32).float()
    args = TrainingArguments(
        str(tmp_path),
        max_steps=60,
        per_device_train_batch_size=32,
        learning_rate=1e-2,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )

    def squared_error(outputs, labels, num_items_in_batch=None):
        return (outputs["logits"][:, 0] - labels).square().mean()

    trainer = Trainer(model, args, train_dataset=rows, compute_loss_func=squared_error)
    assert trainer.label_names == ["labels"]
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert sum(losses[-3:]) / 3 < 0.25 * losses[0]
    assert trainer.predict(rows).predictions.shape == (64, 1)
