"""Cases of models and of the options of training."""

import numpy as np
import torch
from helpers import make_data, make_model
from transformers import Adafactor, DataCollatorForLanguageModeling, DataCollatorForSeq2Seq
from transformers.trainer_pt_utils import get_length_grouped_indices

from drop_in.material import PAD, TOKENIZER, classes, make_bert, make_mixtral, make_vit, texts
from drop_in.sides import case, log, result, weights


MODELS, OPTIONS = "Models", "Options of training"


# ---- models: the log and the weights after three steps ----


@case(MODELS, "T5: losses, gradient norms, weights", seq2seq=True)
def t5(side):
    return result(side.trained(make_model("t5"), **texts("t5")))


@case(MODELS, "BART", seq2seq=True)
def bart(side):
    return result(side.trained(make_model("bart"), **texts("bart")))


@case(MODELS, "GPT-2")
def gpt2(side):
    return result(side.trained(make_model("gpt2"), **texts("gpt2")))


@case(MODELS, "Llama")
def llama(side):
    return result(side.trained(make_model("llama"), **texts("llama")))


@case(MODELS, "mixture of experts (Mixtral) with its auxiliary loss")
def mixtral(side):
    return weights(side.trained(make_mixtral(), **texts("llama")))


@case(MODELS, "BERT that classifies texts")
def classifier(side):
    return result(side.trained(make_bert(), **classes()))


@case(MODELS, "BERT that predicts a number", note="`objective='mse'`")
def regressor(side):
    return result(side.trained(make_bert("numbers"), **classes("numbers")))


@case(MODELS, "BERT that classifies tokens")
def token_classifier(side):
    return result(side.trained(make_bert("tokens"), **classes("tokens")))


@case(MODELS, "masked language model, `DataCollatorForLanguageModeling`")
def masked(side):
    data = make_data("t5", 8).remove_columns("labels")
    collator = DataCollatorForLanguageModeling(TOKENIZER, mlm_probability=0.5)
    return result(side.trained(make_bert("masked"), train_dataset=data, data_collator=collator))


@case(MODELS, "ViT that classifies images, as `pixel_values`")
def images(side):
    pixels = torch.arange(192.0).reshape(3, 8, 8) / 100
    rows = [{"pixel_values": pixels + number, "labels": number % 3} for number in range(8)]
    return result(side.trained(make_vit(), train_dataset=rows))


@case(MODELS, "classifier with several labels per text (`multi_label_classification`)",
      refused="Classification with several labels per row is not supported: use transformers' Trainer.")  # fmt: skip
def several_labels(side):
    model = make_bert(problem_type="multi_label_classification")
    return result(side.trained(model, **classes("several")))


@case(MODELS, "other heads, such as `BertForQuestionAnswering`",
      refused="BertForQuestionAnswering is not supported: it is no language model (causal, sequence-to-sequence, "
      "masked), no classifier of texts, images or tokens, and no regressor.")  # fmt: skip
def other_head(side):
    rows = [{"input_ids": [5, 6, 7, number], "start_positions": 1, "end_positions": 2} for number in range(8)]
    return result(side.trained(make_bert("answers"), train_dataset=rows))


@case(MODELS, "LoRA model made by `get_peft_model`", seq2seq=True)
def lora(side):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model = get_peft_model(make_model("t5"), LoraConfig(target_modules=["q"], r=2, task_type="SEQ_2_SEQ_LM"))
    return result(side.trained(model, **texts("t5")))


@case(MODELS, "frozen parameters", seq2seq=True)
def frozen(side):
    model = make_model("t5")
    model.encoder.requires_grad_(False)
    return result(side.trained(model, **texts("t5")))


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        return {"loss": ((self.layer(x) - labels) ** 2).mean()}


@case(
    MODELS,
    "plain `nn.Module` that returns a loss",
    refused="CLUETrainer needs a transformers model: Plain has no config, which says what it predicts.",
)
def plain_module(side):
    rows = [{"x": [1.0, 2.0], "labels": [1.0]}] * 8
    return weights(side.trained(Plain(), train_dataset=rows))


# ---- options ----


@case(OPTIONS, "shuffled epochs (`num_train_epochs`)", seq2seq=True)
def epochs(side):
    return result(side.trained(make_model("t5"), max_steps=-1, num_train_epochs=2, **texts("t5")))


@case(OPTIONS, "`gradient_accumulation_steps`, causal model")
def accumulation(side):
    return result(side.trained(make_model("gpt2"), gradient_accumulation_steps=2, **texts("gpt2")))


def whole_batches(side):
    data = {**texts("t5"), "data_collator": PAD}
    options = {"train_sampling_strategy": "sequential", "max_grad_norm": 1e9}
    trainer = side.trained(make_model("t5"), per_device_train_batch_size=8, **options, **data)
    return [line["loss"] for line in log(trainer)[:-1]], weights(trainer)


@case(OPTIONS, "`gradient_accumulation_steps`, T5", seq2seq=True, truth=whole_batches,
      ours="the loss and the gradients equal those of the same rows as one batch; stock sums the means of the "
      "batches, so both grow with the number of batches (transformers#47688)")  # fmt: skip
def t5_accumulation(side):
    options = {"train_sampling_strategy": "sequential", "max_grad_norm": 1e9, "gradient_accumulation_steps": 2}
    trainer = side.trained(make_model("t5"), **options, **texts("t5"))
    return [line["loss"] for line in log(trainer)[:-1]], weights(trainer)


@case(OPTIONS, "`gradient_checkpointing`", seq2seq=True)
def checkpointing(side):
    return result(side.trained(make_model("t5"), gradient_checkpointing=True, **texts("t5")))


@case(OPTIONS, "`label_smoothing_factor`", seq2seq=True)
def label_smoothing(side):
    model = make_model("t5")
    settings = {**texts("t5"), "data_collator": DataCollatorForSeq2Seq(TOKENIZER, model)}  # else stock fails
    return result(side.trained(model, label_smoothing_factor=0.1, **settings))


@case(OPTIONS, "`label_smoothing_factor` with CLUE",
      refused="`label_smoothing_factor` is not supported by the objective 'clue', whose error is plain cross-entropy. "
      "Remove it, or set objective='label_smoothing'.")  # fmt: skip
def smoothed_clue(side):
    return side.config(label_smoothing_factor=0.1, objective="clue")


@case(OPTIONS, "`neftune_noise_alpha`")
def neftune(side):
    return result(side.trained(make_model("gpt2"), neftune_noise_alpha=5.0, **texts("gpt2")))


@case(OPTIONS, "`learning_rate`, `lr_scheduler_type`, `warmup_steps`", seq2seq=True)
def schedule(side):
    options = {"lr_scheduler_type": "cosine", "warmup_steps": 2, "max_steps": 5}
    return result(side.trained(make_model("t5"), **options, **texts("t5")))


@case(OPTIONS, "`weight_decay`, `max_grad_norm`, `adam_beta1`", seq2seq=True)
def decay(side):
    return result(side.trained(make_model("t5"), weight_decay=0.5, max_grad_norm=0.1, adam_beta1=0.5, **texts("t5")))


@case(OPTIONS, "`optim='adafactor'`", seq2seq=True)
def adafactor(side):
    return result(side.trained(make_model("t5"), optim="adafactor", **texts("t5")))


def adafactor_by_hand(side):
    model = make_model("t5")
    settings = {"lr": 1e-2, "scale_parameter": True, "relative_step": False}
    optimizer = Adafactor(model.parameters(), **settings)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 3)
    return weights(side.trained(model, optimizers=(optimizer, schedule), **texts("t5")))


@case(OPTIONS, "`optim='adafactor'` with `optim_args`", seq2seq=True, truth=adafactor_by_hand,
      ours="the settings are used; stock ignores them")  # fmt: skip
def adafactor_settings(side):
    return weights(side.trained(make_model("t5"), optim="adafactor", optim_args="scale_parameter=True", **texts("t5")))


@case(OPTIONS, "`bf16` on a CPU", seq2seq=True)
def bf16(side):
    trainer = side.trained(make_model("t5"), bf16=True, **texts("t5"))
    return [round(line["loss"], 1) for line in log(trainer)[:-1]]


@case(OPTIONS, "`train_sampling_strategy='sequential'`", seq2seq=True)
def sequential(side):
    return result(side.trained(make_model("t5"), train_sampling_strategy="sequential", **texts("t5")))


def order_of_rows(side, **settings):
    rows = make_data("gpt2", 32)

    def collate(examples):
        seen.append([len(example["input_ids"]) for example in examples])
        return PAD(examples)

    seen = []
    side.trained(make_model("gpt2"), train_dataset=rows, data_collator=collate, **settings)
    return seen[:3]


def grouped_rows(side):
    rows = make_data("gpt2", 32)
    generator = torch.Generator().manual_seed(side.config().seed)
    order = get_length_grouped_indices([2 * len(row["input_ids"]) for row in rows], 4, generator=generator)
    lengths = [len(rows[number]["input_ids"]) for number in order]
    return [lengths[start : start + 4] for start in (0, 4, 8)]


@case(OPTIONS, "`train_sampling_strategy='group_by_length'`", truth=grouped_rows,
      ours="the order depends only on seed and epoch, so a resumed run continues with it; the rows of a batch have "
      "similar lengths, as in stock")  # fmt: skip
def group_by_length(side):
    return order_of_rows(side, train_sampling_strategy="group_by_length")


@case(OPTIONS, "`data_seed`")
def data_seed(side):
    return order_of_rows(side, data_seed=7)


@case(OPTIONS, "`dataloader_num_workers`, `dataloader_drop_last`")
def workers(side):
    data = {**texts("gpt2"), "train_dataset": make_data("gpt2", 6)}
    return result(side.trained(make_model("gpt2"), dataloader_num_workers=1, dataloader_drop_last=True, **data))


@case(OPTIONS, "`remove_unused_columns=True` drops other columns", seq2seq=True)
def unused_columns(side):
    data = texts("t5")
    data["train_dataset"] = data["train_dataset"].add_column("note", ["text"] * 8)
    return result(side.trained(make_model("t5"), **data))


@case(OPTIONS, "`auto_find_batch_size`")
def batch_size(side):
    from transformers import TrainerCallback

    class Memory(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.train_batch_size > 2:
                raise RuntimeError("CUDA out of memory.")

    trainer = side.trained(make_model("gpt2"), auto_find_batch_size=True, callbacks=[Memory()], **texts("gpt2"))
    return trainer.state.train_batch_size, weights(trainer)


@case(OPTIONS, "`accelerator_config={'dispatch_batches': True}`")
def accelerator_config(side):
    data = texts("gpt2")
    data["train_dataset"] = data["train_dataset"].to_iterable_dataset()
    return result(side.trained(make_model("gpt2"), accelerator_config={"dispatch_batches": True}, **data))


@case(OPTIONS, "gradients that are not finite", seq2seq=True, truth=lambda side: True,
      ours="the step is skipped and counted in `nonfinite_steps`; after `max_nonfinite_steps` (10) in a row, training "
      "stops with advice; in stock, the step corrupts the weights")  # fmt: skip
def nonfinite(side):
    def make(base):
        class Broken(base):
            def compute_loss(self, *args, **kwargs):
                loss = super().compute_loss(*args, **kwargs)
                return loss * float("inf") if self.state.global_step == 1 else loss

        return Broken

    values = weights(side.trained(make_model("t5"), make, **texts("t5"))).values()
    return all(np.isfinite(value).all() for value in values)


@case(OPTIONS, "`include_num_input_tokens_seen`, `logging_first_step`", seq2seq=True)
def tokens_seen(side):
    options = {"include_num_input_tokens_seen": "all", "logging_first_step": True, "logging_steps": 2}
    return log(side.trained(make_model("t5"), **options, **texts("t5")))


@case(OPTIONS, "`logging_steps`", truth=lambda side: 50, ours="the default is 50; in stock, 500")
def logging_steps(side):
    return side.config_class(str(side.folder)).logging_steps


@case(
    OPTIONS,
    "`use_liger_kernel`",
    refused="`use_liger_kernel` replaces the loss inside the model, which CLUE does not use. "
    "Remove it: the fused head (`fused_head`) already avoids holding the logits.",
)
def liger(side):
    return side.config(use_liger_kernel=True)


@case(
    OPTIONS,
    "`sortish_sampler`",
    refused="`sortish_sampler` has no effect in transformers 5. Use train_sampling_strategy='group_by_length'.",
    seq2seq=True,
)
def sortish(side):
    return side.config(sortish_sampler=True)
