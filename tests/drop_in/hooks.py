"""Cases of what users override and hand over, and of the forms of data."""

import datasets
import torch
from helpers import VOCABULARY, make_data, make_model
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    DataCollatorWithPadding,
    TrainerCallback,
)

from drop_in.material import PAD, TOKENIZER, classes, make_bert, raw_texts, texts
from drop_in.sides import case, log, result, weights


HOOKS, DATA = "Hooks", "Data"


# ---- methods that users override ----


def own_loss(base):
    class Own(base):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            loss = 3 * outputs["loss"]
            return (loss, outputs) if return_outputs else loss

    return Own


@case(HOOKS, "`compute_loss` of your own: logged, evaluated and trained as it is", seq2seq=True)
def compute_loss(side):
    trainer = side.trained(make_model("t5"), own_loss, **texts("t5"))
    return result(trainer), trainer.evaluate()["eval_loss"]


@case(HOOKS, "`compute_loss` of your own with `gradient_accumulation_steps`")
def accumulated_loss(side):
    return result(side.trained(make_model("gpt2"), own_loss, gradient_accumulation_steps=2, **texts("gpt2")))


@case(HOOKS, "`super().compute_loss(...)` with a term added", seq2seq=True)
def super_loss(side):
    def make(base):
        class More(base):
            def compute_loss(self, model, inputs, *args, **kwargs):
                return super().compute_loss(model, inputs, *args, **kwargs) + 1

        return More

    return result(side.trained(make_model("t5"), make, **texts("t5")))


@case(HOOKS, "`super().compute_loss(..., return_outputs=True)`, then `outputs.logits`", seq2seq=True)
def super_outputs(side):
    shapes = []

    def make(base):
        class More(base):
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
                shapes.append((tuple(outputs.logits.shape), tuple(outputs["logits"].shape), float(outputs.loss)))
                loss = loss + outputs.logits.mean()
                return (loss, outputs) if return_outputs else loss

        return More

    return result(side.trained(make_model("t5"), make, **texts("t5"))), shapes


@case(HOOKS, "`compute_loss_func` with `gradient_accumulation_steps`")
def loss_function(side):
    def double(outputs, labels, num_items_in_batch=None):
        logits = outputs["logits"][:, :-1].reshape(-1, VOCABULARY)
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:].reshape(-1), reduction="sum")
        return 2 * loss / num_items_in_batch if num_items_in_batch is not None else loss

    options = {"compute_loss_func": double, "gradient_accumulation_steps": 2}
    return result(side.trained(make_model("gpt2"), **options, **texts("gpt2")))


@case(HOOKS, "`training_step`, `log`, `prediction_step` overridden", seq2seq=True)
def other_methods(side):
    seen = []

    def make(base):
        class Other(base):
            def training_step(self, *args, **kwargs):
                seen.append("training_step")
                return super().training_step(*args, **kwargs)

            def log(self, logs, *args, **kwargs):
                seen.append(sorted(set(logs) & {"loss", "eval_loss", "learning_rate", "grad_norm", "epoch"}))
                return super().log(logs, *args, **kwargs)

            def prediction_step(self, *args, **kwargs):
                seen.append("prediction_step")
                return super().prediction_step(*args, **kwargs)

        return Other

    trainer = side.trained(make_model("t5"), make, **texts("t5"))
    trainer.evaluate()
    return seen, result(trainer)


@case(HOOKS, "`get_train_dataloader`, `create_optimizer`, `create_scheduler` overridden", seq2seq=True)
def factories(side):
    def make(base):
        class Other(base):
            def get_train_dataloader(self):
                return torch.utils.data.DataLoader(make_data("t5", 4, seed=3).to_list(), 2, collate_fn=PAD)

            def create_optimizer(self, *args):
                self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
                return self.optimizer

            def create_scheduler(self, *args, **kwargs):
                self.lr_scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)
                return self.lr_scheduler

        return Other

    return result(side.trained(make_model("t5"), make, **texts("t5")))


# ---- what users hand over ----


@case(HOOKS, "order and number of the events of callbacks", seq2seq=True)
def events(side):
    seen = []

    class Record(TrainerCallback):
        def __getattribute__(self, name):
            if name.startswith("on_"):
                return lambda args, state, control, **kwargs: seen.append((name, state.global_step))
            return super().__getattribute__(name)

    options = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    side.trained(make_model("t5"), callbacks=[Record()], **options, **texts("t5"))
    return seen


@case(HOOKS, "`trainer.callback_handler.callbacks`",
      ours="also contains the callbacks of `CLUETrainer`")  # fmt: skip
def callback_list(side):
    return [type(callback).__name__ for callback in side.trainer(make_model("gpt2")).callback_handler.callbacks]


@case(HOOKS, "a callback that stops the training", seq2seq=True)
def stopping(side):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step >= 2

    return side.trained(make_model("t5"), callbacks=[Stop()], **texts("t5")).state.global_step


@case(HOOKS, "`optimizers=(optimizer, scheduler)`", seq2seq=True)
def optimizers(side):
    model = make_model("t5")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    return result(side.trained(model, optimizers=(optimizer, schedule), **texts("t5")))


@case(HOOKS, "`optimizer_cls_and_kwargs`")
def optimizer_class(side):
    choice = (torch.optim.SGD, {"lr": 0.1, "momentum": 0.5})
    return result(side.trained(make_model("gpt2"), optimizer_cls_and_kwargs=choice, **texts("gpt2")))


@case(HOOKS, "`model_init`, trained twice")
def model_init(side):
    trainer = side.trained(None, model_init=lambda: make_model("gpt2"), **texts("gpt2"))
    trainer.train()
    return result(trainer)


@case(HOOKS, "`hyperparameter_search` with optuna")
def search(side):
    def space(trial):
        return {"learning_rate": trial.suggest_categorical("learning_rate", [1e-4, 1e-1])}

    options = {"eval_strategy": "steps", "eval_steps": 3, "model_init": lambda: make_model("gpt2"), **texts("gpt2")}
    trainer = side.trainer(None, **options)
    import optuna

    choices = optuna.samplers.GridSampler({"learning_rate": [1e-4, 1e-1]})
    best = trainer.hyperparameter_search(space, n_trials=2, backend="optuna", sampler=choices)
    return best.hyperparameters, best.objective


@case(HOOKS, "`peft_config`", truth=lambda side: 2, ours="as in TRL, an adapter is added; stock has no such argument")
def peft_config(side):
    from peft import LoraConfig

    config = LoraConfig(target_modules=["c_attn"], r=2, task_type="CAUSAL_LM", fan_in_fan_out=True)
    return side.trained(make_model("gpt2"), peft_config=config, **texts("gpt2")).model.peft_config["default"].r


# ---- forms of data ----


@case(DATA, "`DataCollatorForSeq2Seq`", seq2seq=True)
def seq2seq_collator(side):
    settings = {**texts("t5"), "data_collator": DataCollatorForSeq2Seq(TOKENIZER, pad_to_multiple_of=8)}
    return result(side.trained(make_model("t5"), **settings))


def all_tokens(side, kind, **settings):
    data = make_data(kind, 8).remove_columns("labels")
    return result(
        side.trained(
            make_model(kind),
            train_dataset=data,
            data_collator=DataCollatorForLanguageModeling(TOKENIZER, mlm=False),
            **settings,
        )
    )


@case(DATA, "`input_ids` alone and `DataCollatorForLanguageModeling(mlm=False)`")
def causal_collator(side):
    return all_tokens(side, "llama")


def mean_of_tokens(side):
    def make(base):
        class Mean(base):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                return model(**inputs).loss

        return Mean

    data = make_data("gpt2", 8).remove_columns("labels")
    collator = DataCollatorForLanguageModeling(TOKENIZER, mlm=False)
    return result(side.trained(make_model("gpt2"), make, train_dataset=data, data_collator=collator))


@case(DATA, "the same with GPT-2", truth=mean_of_tokens,
      ours="the mean over the predicted tokens, as the model computes it; stock also counts the first token of each "
      "row, which is not predicted")  # fmt: skip
def gpt2_collator(side):
    return all_tokens(side, "gpt2")


@case(DATA, "`DataCollatorWithFlattening`")
def flattened(side):
    settings = {"train_dataset": make_data("llama", 8), "data_collator": DataCollatorWithFlattening()}
    return result(side.trained(make_model("llama"), **settings))


@case(DATA, "`DataCollatorWithPadding`, classifier")
def padding_collator(side):
    settings = {**classes(), "data_collator": DataCollatorWithPadding(TOKENIZER, padding="max_length", max_length=12)}
    return result(side.trained(make_bert(), **settings))


@case(DATA, "a function as collator, rows of any form", seq2seq=True)
def own_collator(side):
    rows = (
        make_data("t5", 8).rename_columns({"input_ids": "source", "labels": "target"}).remove_columns("attention_mask")
    )

    def collate(examples):
        return PAD([{"input_ids": row["source"], "labels": row["target"]} for row in examples])

    settings = {"train_dataset": rows, "data_collator": collate, "remove_unused_columns": False}
    return result(side.trained(make_model("t5"), **settings))


@case(DATA, "a list of dicts as dataset", seq2seq=True)
def rows(side):
    return result(side.trained(make_model("t5"), train_dataset=make_data("t5", 8).to_list(), data_collator=PAD))


@case(DATA, "a `torch.utils.data.Dataset` of tensors")
def torch_dataset(side):
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, number):
            tokens = torch.arange(5) + 3 + number
            return {"input_ids": tokens, "labels": tokens}

    return result(side.trained(make_model("llama"), train_dataset=Rows()))


@case(DATA, "rows of one length, no collator, no tokenizer", seq2seq=True)
def no_collator(side):
    data = [{"input_ids": [3 + number, 5, 6, 1], "labels": [7, 8 + number, 1]} for number in range(8)]
    return result(side.trained(make_model("t5"), train_dataset=data))


@case(DATA, "a column `label` instead of `labels`, classifier")
def label_column(side):
    data = classes()
    return result(
        side.trained(make_bert(), **{**data, "train_dataset": data["train_dataset"].rename_column("labels", "label")})
    )


@case(DATA, "an iterable dataset (`max_steps`)")
def iterable(side):
    data = texts("gpt2")
    data["train_dataset"] = data["train_dataset"].to_iterable_dataset()
    return result(side.trained(make_model("gpt2"), **data))


def padded_by_hand(side):
    return result(side.trained(make_model("t5"), **texts("t5")))


@case(DATA, "labels of unequal lengths with `processing_class` alone", seq2seq=True, truth=padded_by_hand,
      ours="padded as by `DataCollatorForSeq2Seq`; stock pads only the inputs and fails")  # fmt: skip
def padded_labels(side):
    return result(
        side.trained(make_model("t5"), **{**texts("t5"), "data_collator": None, "processing_class": TOKENIZER})
    )


def tokens_of_raw(side):
    rows = [{**TOKENIZER(row["source"]), "labels": TOKENIZER(row["target"])["input_ids"]} for row in raw_texts()]
    return weights(side.trained(make_model("t5"), train_dataset=rows, data_collator=PAD))


@case(DATA, "raw texts in two columns", seq2seq=True, truth=tokens_of_raw, ours="tokenised; stock needs tokens")
def raw(side):
    settings = {"train_dataset": raw_texts(), "processing_class": TOKENIZER}
    return weights(side.trained(make_model("t5"), **settings))


@case(DATA, "a batch without a single label", truth=lambda side: [(0.0, 1)] * 3,
      ours="adds nothing to the loss and is counted in `skipped_batches`; in stock, the loss is NaN")  # fmt: skip
def no_labels(side):
    data = datasets.Dataset.from_list([{"input_ids": [5, 6, 7], "labels": [-100] * 3}] * 8)
    trainer = side.trained(make_model("gpt2"), train_dataset=data, data_collator=PAD, logging_nan_inf_filter=False)
    return [(line["loss"], line.get("skipped_batches")) for line in log(trainer)[:-1]]
