"""transformers' own trainer and ours on the same model and data."""

import torch
from helpers import make_tokenizer
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from clue_hf import CLUEConfig, CLUETrainer


QUIET = {
    "max_steps": 2, "per_device_train_batch_size": 4, "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True,
    "train_sampling_strategy": "sequential", "max_grad_norm": 1e9, "learning_rate": 1e-2, "report_to": "none",
    "use_cpu": True,
}  # fmt: skip


def both(make, folder, train=None, evaluation=None, classes=(Seq2SeqTrainer, CLUETrainer), settings=None, **arguments):
    """The two trainers, `make()` giving each its model; ours with the objective `ce`, that of the stock one."""
    trainers = []
    for trainer_class in classes:
        ours = issubclass(trainer_class, CLUETrainer)
        config = CLUEConfig if ours else Seq2SeqTrainingArguments
        own = {"objective": "ce"} if ours else {}
        tokenizer = make_tokenizer()
        options = {"data_collator": DataCollatorForSeq2Seq(tokenizer), "processing_class": tokenizer, **arguments}
        trainers.append(
            trainer_class(
                model=make(),
                args=config(str(folder / trainer_class.__name__), **{**QUIET, **own, **(settings or {})}),
                train_dataset=train,
                eval_dataset=evaluation,
                **options,
            )
        )
    return trainers


def same_weights(one, other, rtol=1e-5, atol=1e-7):
    weights = other.model.state_dict()
    for name, weight in one.model.state_dict().items():
        torch.testing.assert_close(weights[name], weight, rtol=rtol, atol=atol, msg=name)
