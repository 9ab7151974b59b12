"""Token classifiers and masked language models: an item is a token with a label, which is not shifted."""

import datasets
import pytest
import torch
from helpers import SENTENCES, VOCABULARY, log_lines, make_tokenizer
from stock import both, same_weights
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    DataCollatorForLanguageModeling,
    DataCollatorForTokenClassification,
    DistilBertConfig,
    DistilBertForMaskedLM,
    RobertaForMaskedLM,
    Trainer,
)

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.cli.main import main
from clue_hf.errors import UserError
from clue_hf.predictors.loading import load_predictor
from clue_hf.tasks import make_task


SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32, "num_labels": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 40,
}  # fmt: skip
SMALL = {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "dropout": 0.0,
         "attention_dropout": 0.0}  # fmt: skip
MODELS = {
    "token": (BertForTokenClassification, BertConfig(**SIZES)),
    "bert": (BertForMaskedLM, BertConfig(**SIZES)),
    "roberta": (RobertaForMaskedLM, BertConfig(**SIZES)),
    "distilbert": (DistilBertForMaskedLM, DistilBertConfig(**SMALL)),
}


def make_model(name):
    torch.manual_seed(0)
    model_class, config = MODELS[name]
    return model_class(config)


def make_rows(name, rows=10):
    generator = torch.Generator().manual_seed(1)
    classes = 3 if name == "token" else VOCABULARY
    lengths = torch.randint(3, 9, (rows,), generator=generator).tolist()
    ids = [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]
    labels = [[-100, *torch.randint(classes, (length - 1,), generator=generator).tolist()] for length in lengths]
    return datasets.Dataset.from_list(
        [
            {"input_ids": one, "attention_mask": [1] * len(one), "labels": other}
            for one, other in zip(ids, labels, strict=True)
        ]
    )


@pytest.mark.parametrize("fused_head", ["auto", "off"])
@pytest.mark.parametrize("name", MODELS)
def test_trains_and_evaluates_as_the_stock_trainer(name, fused_head, tmp_path):
    data, collator = make_rows(name), DataCollatorForTokenClassification(make_tokenizer())
    stock, ours = both(
        lambda: make_model(name), tmp_path, data, data, (Trainer, CLUETrainer), {"per_device_eval_batch_size": 10},
        data_collator=collator,
    )  # fmt: skip
    ours.task.fused_head = fused_head
    assert ours.evaluate()["eval_loss"] == pytest.approx(stock.evaluate()["eval_loss"], rel=1e-5)
    assert ours.predict(data).predictions.shape == stock.predict(data).predictions.shape
    stock.train()
    ours.train()
    assert [line["loss"] for line in log_lines(ours)] == pytest.approx(
        [line["loss"] for line in log_lines(stock)], rel=1e-5
    )
    same_weights(stock, ours, rtol=1e-3, atol=1e-5)
    assert list(ours.task._fusable.values()) == [fused_head == "auto" and name != "token"]


@pytest.mark.parametrize("name", ["token", "bert"])
def test_error_and_uncertainty_by_hand(name, tmp_path):
    model, rows = make_model(name).eval(), make_rows(name, 3)
    config = CLUEConfig(str(tmp_path), use_cpu=True)
    batch = dict(DataCollatorForTokenClassification(make_tokenizer())(rows.to_list()))
    described = make_task(model, config).describe(model, batch)
    logits = model(**{key: value for key, value in batch.items() if key != "labels"}).logits
    distribution = logits.log_softmax(-1)
    entropy = -(distribution.exp() * distribution).sum(-1)
    error = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
    kept = batch["labels"] != -100
    torch.testing.assert_close(described[..., 0][kept], error[kept], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(described[..., 1][kept], entropy[kept], rtol=1e-4, atol=1e-5)
    assert described[..., 0][~kept].isnan().all()


@pytest.mark.parametrize("name", ["token", "bert"])
def test_the_loss_does_not_depend_on_the_layout(name, tmp_path):
    found = []
    for batch, accumulation in ((8, 1), (2, 4)):
        config = CLUEConfig(
            str(tmp_path), alpha=0.5, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
            max_steps=2, logging_steps=1, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True,
            train_sampling_strategy="sequential", max_grad_norm=1e9,
        )  # fmt: skip
        trainer = CLUETrainer(
            make_model(name), config, train_dataset=make_rows(name, 8), processing_class=make_tokenizer()
        )
        trainer.train()
        found.append([(line["loss"], line["grad_norm"], line["uncertainty"]) for line in log_lines(trainer)])
    torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(found[1]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", ["clue", "brier", "focal", "label_smoothing", "eaft", "dft", "maxsup", "ce_pe"])
def test_objectives_of_tokens(objective, tmp_path):
    for name in ("token", "bert"):
        config = CLUEConfig(
            str(tmp_path), objective=objective, max_steps=1, use_cpu=True, report_to="none", save_strategy="no"
        )
        trainer = CLUETrainer(
            make_model(name), config, train_dataset=make_rows(name), processing_class=make_tokenizer()
        )
        assert trainer.train().training_loss > 0
    with pytest.raises(UserError, match="not for token"):
        make_task(make_model("token"), CLUEConfig(str(tmp_path), objective="euat"))


def test_masked_texts_come_from_the_collator(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    data = datasets.Dataset.from_list([dict(tokenizer(text)) for text in SENTENCES])
    model = BertForMaskedLM(BertConfig(**{**SIZES, "vocab_size": len(tokenizer)}))
    config = CLUEConfig(str(tmp_path), max_steps=2, logging_steps=1, use_cpu=True, report_to="none")
    trainer = CLUETrainer(model, config, DataCollatorForLanguageModeling(tokenizer), data, processing_class=tokenizer)
    trainer.train()
    assert all(line["error"] > 0 for line in log_lines(trainer))
    again = CLUETrainer(f"{tmp_path}/checkpoint-2", config)  # a folder is enough
    assert isinstance(again.model, BertForMaskedLM)
    assert again.task.kind == "token"


@pytest.mark.parametrize("head", [BertForMultipleChoice, BertForQuestionAnswering, BertModel])
def test_other_heads_are_refused(head, tmp_path):
    with pytest.raises(UserError, match=f"{head.__name__} is not supported"):
        CLUETrainer(head(BertConfig(**SIZES)), CLUEConfig(str(tmp_path), use_cpu=True))


@pytest.mark.parametrize(("name", "task"), [("token", "token-classification"), ("bert", "fill-mask")])
def test_the_card_shows_the_pipeline_of_transformers(name, task, tmp_path):
    trainer = CLUETrainer(make_model(name), CLUEConfig(str(tmp_path), use_cpu=True), processing_class=make_tokenizer())
    trainer.save_model()
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text()
    assert f"pipeline_tag: {task}" in card
    assert f'from transformers import pipeline\n\nask = pipeline("{task}"' in card
    assert "clue_hf import pipeline" not in card


@pytest.mark.parametrize("options", [[], ["--task", "token"]])
def test_the_train_command_refuses_them(options, tmp_path, capsys):
    make_model("token").save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text('{"source": "the cat", "target": "le chat"}\n' * 4)
    files = [f"--{split}_file={tmp_path}/rows.jsonl" for split in ("train", "validation", "test")]
    words = ["--model_name_or_path", str(tmp_path / "model"), "--output_dir", str(tmp_path / "out"), *files, *options]
    assert main(["train", *words]) == 2
    assert "does not train token classifiers" in capsys.readouterr().err


def test_what_else_is_refused(tmp_path):
    config = CLUEConfig(str(tmp_path), use_cpu=True)
    with pytest.raises(UserError, match="needs a transformers model: Linear"):
        CLUETrainer(torch.nn.Linear(2, 1), config)
    with pytest.raises(UserError, match="task='token'"):
        CLUETrainer(make_model("token"), CLUEConfig(str(tmp_path), task="causal", use_cpu=True))
    several = BertConfig(**SIZES, problem_type="multi_label_classification")
    with pytest.raises(UserError, match="several labels"):
        CLUETrainer(BertForSequenceClassification(several), config)
    rows = datasets.Dataset.from_dict({"tokens": [["a"]], "tags": [[1]]})
    with pytest.raises(UserError, match="must be tokenised"):
        CLUETrainer(make_model("token"), config, train_dataset=rows, processing_class=make_tokenizer())
    generates = CLUEConfig(str(tmp_path), use_cpu=True, predict_with_generate=True)
    trainer = CLUETrainer(make_model("token"), generates, processing_class=make_tokenizer())
    with pytest.raises(ValueError, match="generates no text"):
        trainer.predict(make_rows("token"))
    make_model("token").save_pretrained(tmp_path)
    with pytest.raises(UserError, match="not supported here"):
        load_predictor(str(tmp_path), "cpu")
