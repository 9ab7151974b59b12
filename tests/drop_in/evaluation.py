"""Cases of evaluation, prediction and generation."""

import numpy as np
import torch
from helpers import make_data, make_model
from transformers import DataCollatorWithPadding, GenerationConfig

from drop_in.material import PAD, TOKENIZER, classes, make_bert, raw_texts, texts
from drop_in.sides import case, measured


EVALUATION, PREDICTIONS, GENERATION = "Evaluation", "Predictions", "Generation"


def trainer_of(side, kind, **settings):
    return side.trainer(make_model(kind), **{**texts(kind), **settings})


def predicted(output):
    """Predictions with their shapes and values, labels and metrics."""
    return output.predictions, output.label_ids, measured(output.metrics or {})


# ---- evaluation ----


@case(EVALUATION, "`evaluate()` of T5, one batch", seq2seq=True, note="also reports `eval_error` and other metrics")
def t5(side):
    return measured(trainer_of(side, "t5").evaluate())


@case(EVALUATION, "`evaluate()` of a causal model, one batch")
def gpt2(side):
    return measured(trainer_of(side, "gpt2").evaluate())


@case(EVALUATION, "`evaluate()` of a classifier")
def classifier(side):
    return measured(side.trainer(make_bert(), **classes()).evaluate())


@case(EVALUATION, "`evaluate()` of a token classifier, one batch")
def token_classifier(side):
    return measured(side.trainer(make_bert("tokens"), **classes("tokens")).evaluate())


def loss_of_seven(side, batch_size):
    settings = {"eval_dataset": make_data("t5", 7), "per_device_eval_batch_size": batch_size}
    return trainer_of(side, "t5", **settings).evaluate()["eval_loss"]


@case(EVALUATION, "`eval_loss` over several batches", seq2seq=True, truth=lambda side: loss_of_seven(side, 7),
      ours="the mean over all tokens; stock averages the means of the batches, regardless of their numbers of "
      "tokens")  # fmt: skip
def batches(side):
    return loss_of_seven(side, 2)


@case(EVALUATION, "`compute_metrics`")
def metrics(side):
    def accuracy(prediction):
        return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}

    return measured(side.trainer(make_bert(), compute_metrics=accuracy, **classes()).evaluate())


@case(EVALUATION, "`batch_eval_metrics`")
def batch_metrics(side):
    seen = []

    def count(prediction, compute_result):
        seen.append(tuple(prediction.predictions.shape))
        return {"batches": len(seen)} if compute_result else {}

    options = {"batch_eval_metrics": True, "per_device_eval_batch_size": 2}
    return measured(side.trainer(make_bert(), compute_metrics=count, **options, **classes()).evaluate()), seen


@case(EVALUATION, "`include_for_metrics=['inputs', 'loss']`")
def included(side):
    def shapes(prediction):
        return {"inputs": prediction.inputs.shape, "losses": np.asarray(prediction.losses).tolist()}

    options = {"include_for_metrics": ["inputs", "loss"], "compute_metrics": shapes}
    return measured(side.trainer(make_bert(), **options, **classes()).evaluate())


@case(EVALUATION, "`preprocess_logits_for_metrics` of T5: `logits[0].argmax(-1)`", seq2seq=True)
def preprocessed(side):
    def shape(prediction):
        return {"shape": prediction.predictions.shape, "sum": int(prediction.predictions.sum())}

    def argmax(logits, labels):
        return logits[0].argmax(-1)

    return measured(trainer_of(side, "t5", preprocess_logits_for_metrics=argmax, compute_metrics=shape).evaluate())


@case(EVALUATION, "a dict of evaluation datasets", seq2seq=True)
def several(side):
    data = {"one": make_data("t5", 4), "two": make_data("t5", 4, seed=2)}
    return measured(trainer_of(side, "t5", eval_dataset=data).evaluate())


@case(EVALUATION, "`evaluate('name')` of one of them", seq2seq=True)
def named(side):
    data = {"one": make_data("t5", 4), "two": make_data("t5", 4, seed=2)}
    return measured(trainer_of(side, "t5", eval_dataset=data).evaluate("two"))


@case(EVALUATION, "`evaluate(other_dataset, metric_key_prefix=...)`", seq2seq=True)
def prefix(side):
    return measured(trainer_of(side, "t5").evaluate(make_data("t5", 3, seed=5), metric_key_prefix="test"))


@case(EVALUATION, "`eval_strategy`, `eval_steps`, `eval_on_start`, `eval_delay`", seq2seq=True)
def strategy(side):
    options = {"eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True, "eval_delay": 2, "max_steps": 4}
    trainer = trainer_of(side, "t5", **options)
    trainer.train()
    return [(line["step"], line["eval_loss"]) for line in trainer.state.log_history if "eval_loss" in line]


@case(EVALUATION, "`prediction_loss_only`, `eval_accumulation_steps`", seq2seq=True)
def loss_only(side):
    options = {"prediction_loss_only": True, "eval_accumulation_steps": 1}
    return predicted(trainer_of(side, "t5", **options).predict(make_data("t5", 4)))


@case(EVALUATION, "`eval_do_concat_batches=False`")
def lists(side):
    output = side.trainer(make_bert(), eval_do_concat_batches=False, per_device_eval_batch_size=2, **classes())
    return predicted(output.predict(classes()["eval_dataset"]))


@case(EVALUATION, "an iterable evaluation dataset")
def iterable(side):
    return measured(trainer_of(side, "gpt2", eval_dataset=make_data("gpt2", 4).to_iterable_dataset()).evaluate())


def tokens_of_raw(side):
    """The same with tokens made by hand."""
    rows = [{**TOKENIZER(row["source"]), "labels": TOKENIZER(row["target"])["input_ids"]} for row in raw_texts()]
    trainer = trainer_of(side, "t5", eval_dataset=None)
    return measured(trainer.evaluate(rows)), trainer.predict(rows).label_ids


@case(EVALUATION, "raw texts in `evaluate` and `predict`", seq2seq=True, truth=tokens_of_raw,
      ours="tokenised like the training data; stock needs tokens")  # fmt: skip
def raw(side):
    trainer = trainer_of(side, "t5", processing_class=TOKENIZER, data_collator=None, eval_dataset=None)
    return measured(trainer.evaluate(raw_texts())), trainer.predict(raw_texts()).label_ids


# ---- predictions ----


@case(PREDICTIONS, "T5: a tuple of logits and encoder states", seq2seq=True)
def predict_t5(side):
    return predicted(trainer_of(side, "t5", per_device_eval_batch_size=8).predict(make_data("t5", 6)))


@case(PREDICTIONS, "causal model: logits")
def predict_gpt2(side):
    return predicted(trainer_of(side, "gpt2", per_device_eval_batch_size=8).predict(make_data("gpt2", 6)))


@case(PREDICTIONS, "classifier: logits")
def predict_classes(side):
    return predicted(side.trainer(make_bert(), **classes()).predict(classes()["eval_dataset"]))


def log_mean_softmax(side):
    return (0.0,) * 4  # ln of what adds up to 1


@case(PREDICTIONS, "classifier with dropout", truth=log_mean_softmax,
      ours="ln of the mean probabilities over `mc_samples` passes with dropout; `mc_samples=0`: logits, as in "
      "stock")  # fmt: skip
def predict_with_dropout(side):
    trainer = side.trainer(make_bert(hidden_dropout_prob=0.1), **classes())
    logits = trainer.predict(classes()["eval_dataset"]).predictions
    return tuple(float(total) for total in np.log(np.exp(logits).sum(-1)))


@case(PREDICTIONS, "classifier with dropout, `mc_samples=0`")
def predict_without_passes(side):
    settings = {"mc_samples": 0} if side.is_ours else {}
    trainer = side.trainer(make_bert(hidden_dropout_prob=0.1), **settings, **classes())
    return predicted(trainer.predict(classes()["eval_dataset"]))


@case(PREDICTIONS, "regressor: the shape is `(rows,)`", truth=lambda side: (4,),
      ours="the shape of the labels, so `predictions - labels` does not broadcast; stock has `(rows, 1)`")  # fmt: skip
def predict_numbers(side):
    data = classes("numbers")
    return np.shape(side.trainer(make_bert("numbers"), **data).predict(data["eval_dataset"]).predictions)


@case(PREDICTIONS, "token classifier: logits")
def predict_tokens(side):
    data = classes("tokens")
    return predicted(side.trainer(make_bert("tokens"), **data).predict(data["eval_dataset"]))


@case(PREDICTIONS, "rows without labels, T5", seq2seq=True)
def unlabelled(side):
    class Inputs:
        def __call__(self, rows):
            batch = PAD(rows)
            return {**batch, "decoder_input_ids": batch["input_ids"][:, :2]}

    data = make_data("t5", 4).remove_columns("labels")
    return predicted(trainer_of(side, "t5", data_collator=Inputs()).predict(data))


@case(PREDICTIONS, "rows without labels, classifier")
def unlabelled_classes(side):
    data = classes()["eval_dataset"].remove_columns("labels")
    return predicted(side.trainer(make_bert(), **classes()).predict(data))


@case(PREDICTIONS, "`label_names` with two names")
def label_names(side):
    data = classes()["eval_dataset"].map(lambda row: {"group": row["labels"] + 1})
    settings = {**classes(), "label_names": ["labels", "group"], "remove_unused_columns": False}
    settings["data_collator"] = DataCollatorWithPadding(TOKENIZER)

    def take(batch):
        batch.pop("group", None)
        return batch

    def make(base):
        class Grouped(base):
            def compute_loss(self, model, inputs, *args, **kwargs):
                return super().compute_loss(model, take(dict(inputs)), *args, **kwargs)

        return Grouped

    trainer = side.trainer(make_bert(), make, **settings)
    return trainer.predict(data).label_ids


# ---- generation ----


def generated(side, kind="t5", model_settings=(), call=(), **settings):
    model = make_model(kind)
    for name, value in dict(model_settings).items():
        setattr(model.generation_config, name, value)
    settings = {**texts(kind), "processing_class": TOKENIZER, "predict_with_generate": True, **settings}
    trainer = side.trainer(model, **settings)
    output = trainer.predict(settings["eval_dataset"], **dict(call))
    return output.predictions, output.label_ids, output.metrics["test_loss"]


@case(GENERATION, "`generation_config.max_length` of the model; labels padded to it", seq2seq=True)
def model_length(side):
    return generated(side, model_settings={"max_length": 15})


@case(GENERATION, "`generation_config.max_new_tokens` of the model", seq2seq=True)
def model_new_tokens(side):
    return generated(side, model_settings={"max_new_tokens": 14})


@case(GENERATION, "`generation_max_length`", seq2seq=True)
def argument_length(side):
    return generated(side, generation_max_length=14)


@case(GENERATION, "`generation_num_beams`", seq2seq=True)
def beams(side):
    return generated(side, generation_max_length=14, generation_num_beams=3)


@case(GENERATION, "`args.generation_config`", seq2seq=True)
def argument_config(side):
    config = GenerationConfig(max_new_tokens=4, decoder_start_token_id=0, pad_token_id=0)
    return generated(side, generation_config=config)


@case(GENERATION, "`predict(max_length=..., num_beams=...)`", seq2seq=True)
def call_length(side):
    return generated(side, call={"max_length": 13, "num_beams": 2}, generation_max_length=17)


@case(GENERATION, "`evaluate(max_length=...)`", seq2seq=True)
def evaluate_length(side):
    def width(prediction):
        return {"width": prediction.predictions.shape[1]}

    settings = {"processing_class": TOKENIZER, "predict_with_generate": True, "compute_metrics": width}
    return measured(trainer_of(side, "t5", **settings).evaluate(max_length=13))


@case(GENERATION, "`predict(generation_config=...)`", seq2seq=True)
def call_config(side):
    config = GenerationConfig(max_new_tokens=6, eos_token_id=1, pad_token_id=0, decoder_start_token_id=0)
    return generated(side, call={"generation_config": config})


@case(GENERATION, "labels longer than what is generated", seq2seq=True)
def short_texts(side):
    return generated(side, generation_max_length=3)


@case(GENERATION, "`predict(num_return_sequences=...)`", seq2seq=True)
def several_texts(side):
    call = {"max_new_tokens": 5, "num_beams": 2, "num_return_sequences": 2}
    return generated(side, call=call, eval_dataset=make_data("t5", 4), per_device_eval_batch_size=3)[0]


@case(GENERATION, "sampling: `predict(do_sample=True)`", seq2seq=True)
def sampling(side):
    return generated(side, call={"do_sample": True, "max_new_tokens": 5, "top_k": 5})


@case(GENERATION, "no length is given", seq2seq=True, truth=lambda side: (4, 129),
      ours="`max_target_length` new tokens, 128; stock generates at most 20 tokens")  # fmt: skip
def no_length(side):
    return generated(side, model_settings={"eos_token_id": None}, max_steps=1)[0].shape


def continued_prompts(side):
    """What the model says after each prompt alone."""
    model, answers = make_model("gpt2"), np.zeros((4, 4), dtype=np.int64)
    for number, row in enumerate(texts("gpt2")["eval_dataset"]):
        prompt = torch.tensor([row["input_ids"][: row["labels"].count(-100)]])
        answer = model.generate(prompt, max_new_tokens=4)[0, prompt.shape[1] :]
        answers[number, : len(answer)] = answer
    return answers


@case(GENERATION, "causal model", seq2seq=True, truth=continued_prompts,
      ours="tokens without a label are the prompt, and its continuation is returned; stock continues the "
      "targets")  # fmt: skip
def causal(side):
    return generated(side, "gpt2", call={"max_new_tokens": 4})[0][:, :4]
