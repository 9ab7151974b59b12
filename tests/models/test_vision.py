import pytest
import torch
import torch.nn.functional as F
from models.networks import make_resnet
from torch import nn
from transformers import AutoConfig, AutoModelForImageClassification, Trainer, TrainingArguments
from transformers import ResNetConfig as TheirConfig
from transformers import ResNetForImageClassification as TheirModel

from clue_hf.errors import UserError
from clue_hf.models.mc_dropout import DropoutLinear, Replicas
from clue_hf.models.vision import CLUEResNetConfig, CLUEResNetForImageClassification


def parameters_of(name, **settings):
    with torch.device("meta"):
        model = CLUEResNetForImageClassification(CLUEResNetConfig.preset(name, **settings))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("resnet18", 10, 11_173_962),
        ("resnet34", 10, 21_282_122),
        ("resnet18_imagenet", 1000, 11_689_512),
        ("resnet34_imagenet", 1000, 21_797_672),
        ("resnet50_imagenet", 1000, 25_557_032),
        ("resnet101_imagenet", 1000, 44_549_160),
        ("wide_resnet28_10", 100, 36_536_884),
    ],
)
def test_as_many_parameters_as_known(name, labels, expected):
    assert parameters_of(name, num_labels=labels) == expected
    assert parameters_of(name, num_labels=labels, dropout=0.3, dropout_from="all") == expected


@pytest.mark.parametrize(
    ("name", "millions"), [("resnet20", 0.27), ("resnet32", 0.46), ("resnet56", 0.85), ("resnet110", 1.7)]
)
def test_as_many_parameters_as_he_et_al(name, millions):
    assert parameters_of(name, num_labels=10) / 1e6 == pytest.approx(millions, rel=0.03)


def test_presets():
    config = CLUEResNetConfig.preset("resnet8", num_labels=7, dropout=0.3, widths=[8, 16, 32])
    assert (config.depths, config.widths, config.num_labels, config.dropout) == ([1, 1, 1], [8, 16, 32], 7, 0.3)
    assert CLUEResNetConfig.preset("wide_resnet16_4").widths == [64, 128, 256]
    with pytest.raises(UserError, match="resnet50"):
        CLUEResNetConfig.preset("resnet19")
    with pytest.raises(UserError, match="6 n"):
        CLUEResNetConfig.preset("wide_resnet30_10")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"block": "round"}, "`block` must be one of basic"),
        ({"stem": "flower"}, "`stem` must be one of"),
        ({"dropout_from": "stem"}, "`dropout_from` must be one of"),
        ({"dropout": 1.0}, "`dropout` must be"),
        ({"depths": [1, 1]}, "same length"),
        ({"block": "preactivation", "zero_init_residual": True}, "zero_init_residual"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        CLUEResNetConfig(**wrong)


@pytest.mark.parametrize(("block", "expansion"), [("basic", 1), ("bottleneck", 4)])
def test_the_logits_are_those_of_transformers_own(block, expansion):
    ours = make_resnet(block, stem="imagenet").eval()
    theirs = TheirModel(
        TheirConfig(
            embedding_size=8,
            hidden_sizes=[width * expansion for width in (8, 16, 32)],
            depths=[1, 1, 2],
            layer_type=block,
            num_labels=5,
        )
    ).eval()
    pairs = list(zip(theirs.state_dict().values(), ours.state_dict().values(), strict=True))
    for their, our in pairs:  # the layers of a block come in the same order
        assert their.shape == our.shape
        their.copy_(our)
    images = torch.randn(3, 3, 40, 40)
    torch.testing.assert_close(ours(images).logits, theirs(images).logits, rtol=1e-4, atol=1e-4)


def test_a_preactivation_block_by_hand():
    model = make_resnet("preactivation").eval()
    block, hidden = model.stages[1][0], torch.randn(2, 8, 8, 8)
    activated = F.relu(block.norm1(hidden))
    branch = F.conv2d(activated, block.conv1.weight, stride=2, padding=1)
    branch = F.conv2d(F.relu(block.norm2(branch)), block.conv2.weight, padding=1)
    expected = branch + F.conv2d(activated, block.shortcut.weight, stride=2)
    torch.testing.assert_close(block(hidden), expected)
    straight = model.stages[2][1]
    nn.init.zeros_(straight.conv2.weight)
    hidden = torch.randn(2, 32, 4, 4)
    assert torch.equal(straight(hidden), hidden)
    features = F.relu(model.last_norm(model.stages(model.stem(torch.ones(1, 3, 8, 8)))))
    torch.testing.assert_close(model(torch.ones(1, 3, 8, 8)).logits, model.classifier(features.mean((2, 3))))


@pytest.mark.parametrize(("stem", "sizes"), [("cifar", [32, 16, 8]), ("imagenet", [8, 4, 2])])
def test_sizes_of_the_stages(stem, sizes):
    model, found = make_resnet(stem=stem, num_channels=1), []
    for stage in model.stages:
        stage.register_forward_hook(lambda module, given, output: found.append(output.shape[-1]))
    model(torch.randn(2, 1, 32, 32))
    assert found == sizes


@pytest.mark.parametrize("block", ["basic", "bottleneck", "preactivation"])
@pytest.mark.parametrize("dropout_from", ["classifier", "last_stage", "all"])
def test_saved_and_loaded_by_the_auto_classes(block, dropout_from, tmp_path):
    names = {"id2label": {0: "cat", 1: "dog", 2: "bird"}, "num_labels": 3}
    model = make_resnet(block, dropout=0.25, dropout_from=dropout_from, **names).eval()
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path)
    assert type(loaded) is CLUEResNetForImageClassification
    assert (config.id2label, config.dropout, config.dropout_from) == (names["id2label"], 0.25, dropout_from)
    assert str(loaded) == str(model)  # every layer, with its rate
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(loaded(images).logits, model(images).logits)


@pytest.mark.parametrize("block", ["basic", "bottleneck", "preactivation"])
def test_where_dropout_begins(block):
    def dropped(dropout_from, dropout=0.3):
        model = make_resnet(block, dropout=dropout, dropout_from=dropout_from)
        rates = {name: module.p for name, module in model.named_modules() if isinstance(module, nn.Dropout)}
        assert set(rates.values()) <= {0.3}
        starts = [name.removesuffix(".replicas") for name, module in model.named_modules()
                  if isinstance(module, Replicas)]  # fmt: skip
        assert isinstance(model.classifier, DropoutLinear)
        return [name.removesuffix(".dropout") for name in rates], starts, model.classifier.dropout

    assert dropped("classifier") == ([], [], 0.3)
    assert dropped("last_stage") == (["stages.2.0", "stages.2.1"], ["stages.2.0"], 0.3)
    every = ["stages.0.0", "stages.1.0", "stages.2.0", "stages.2.1"]
    assert dropped("all") == (every, ["stages.0.0"], 0.3)
    assert dropped("all", 0.0)[::2] == ([], 0.0)


def test_the_start_of_training():
    torch.manual_seed(0)
    config = CLUEResNetConfig.preset("resnet18", num_labels=10, zero_init_residual=True)
    model = CLUEResNetForImageClassification(config)
    weight = model.stages[3][1].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)  # Kaiming, fan out
    assert model.classifier.weight.abs().max() <= 512**-0.5
    for stage in model.stages:
        for block in stage:
            assert torch.equal(block.last_norm.weight, torch.zeros_like(block.last_norm.weight))
            assert torch.equal(block.norm1.weight, torch.ones_like(block.norm1.weight))


def test_outputs_and_loss():
    model, images, labels = make_resnet().eval(), torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 4])
    found = model(images, labels=labels)
    assert model(images).loss is None
    assert torch.equal(found.loss, F.cross_entropy(found.logits, labels))
    assert torch.equal(model(images, return_dict=False)[0], found.logits)
    loss, logits = model(images, labels=labels, return_dict=False)
    assert torch.equal(loss, found.loss)
    assert torch.equal(logits, found.logits)


@pytest.mark.parametrize("block", ["basic", "bottleneck", "preactivation"])
def test_bfloat16_and_compiled(block):
    model, images = make_resnet(block, dropout=0.2, dropout_from="all"), torch.randn(4, 3, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(images, labels=torch.tensor([0, 1, 2, 3]))
    assert found.logits.dtype == torch.bfloat16
    found.loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    torch._dynamo.reset()
    compiled = torch.compile(model.eval(), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images).logits, model(images).logits)


def test_trained_by_transformers_own_trainer(tmp_path):
    generator = torch.Generator().manual_seed(0)
    rows = [
        {"pixel_values": torch.randn(3, 8, 8, generator=generator) + label, "labels": label} for label in [0, 1] * 8
    ]
    model = make_resnet(num_labels=2, dropout=0.1)
    args = TrainingArguments(
        str(tmp_path),
        max_steps=20,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    trainer = Trainer(model, args, train_dataset=rows)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert losses[0] < 5  # a mean, not a sum over the accumulated batches
    assert sum(losses[-3:]) / 3 < 0.3 < losses[0]
