"""Cases of the arguments, of saving and of resuming."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from helpers import make_data, make_model
from transformers import AutoModelForSeq2SeqLM, HfArgumentParser, Seq2SeqTrainingArguments

from clue_hf.hub.push import collect_files
from drop_in.material import PAD, TOKENIZER, texts
from drop_in.sides import case, log, result, weights


ARGUMENTS, SAVING = "Arguments", "Saving and resuming"


# ---- arguments ----


@case(ARGUMENTS, "the order of the arguments")
def positions(side):
    data = make_data("gpt2", 8)
    metrics = [None] * 4
    trainer = side.trainer_class(make_model("gpt2"), side.config(), PAD, data, data, TOKENIZER, *metrics, (None, None))
    trainer.train()
    return result(trainer)


@case(ARGUMENTS, "`TrainingArguments` as `args`", seq2seq=True,
      note="converted; settings that they lack, such as the objective, have the default of `CLUEConfig`")  # fmt: skip
def stock_arguments(side):
    args = Seq2SeqTrainingArguments(str(side.folder), learning_rate=1e-3, use_cpu=True, report_to="none", max_steps=2)
    trainer = side.trainer(make_model("t5"), args=args, **texts("t5"))
    kept = {**args.to_dict(), **dict.fromkeys(("output_dir", "logging_dir", "run_name"))}
    return {name: value for name, value in trainer.args.to_dict().items() if kept.get(name) is not None}


@dataclass
class ScriptArguments:
    """Options that run_translation.py and run_summarization.py declare beside the training arguments."""

    source_prefix: str | None = field(default=None)
    max_source_length: int = field(default=1024)
    max_target_length: int = field(default=128)
    val_max_target_length: int | None = field(default=None)
    preprocessing_num_workers: int | None = field(default=None)
    num_beams: int | None = field(default=1)
    pad_to_max_length: bool = field(default=False)
    ignore_pad_token_for_loss: bool = field(default=True)
    max_train_samples: int | None = field(default=None)
    text_column: str | None = field(default=None)
    summary_column: str | None = field(default=None)
    forced_bos_token: str | None = field(default=None)


@case(ARGUMENTS, "`HfArgumentParser` with the options of run_translation.py", seq2seq=True)
def script_arguments(side):
    words = ["--output_dir", str(side.folder), "--source_prefix", "x: ", "--max_source_length", "9",
             "--learning_rate", "0.5", "--predict_with_generate", "--report_to", "none"]  # fmt: skip
    options, args = HfArgumentParser((ScriptArguments, side.config_class)).parse_args_into_dataclasses(words)
    return options, args.learning_rate, args.predict_with_generate


@case(
    ARGUMENTS,
    "no `objective`",
    truth=lambda side: "clue",
    ours="CLUE with `alpha=0.9`; `objective='ce'` is the loss of stock",
)
def objective(side):
    return getattr(side.config_class(str(side.folder)), "objective", None)


def given_model(side):
    return weights(side.trained(make_model("t5"), **texts("t5")))


@case(ARGUMENTS, "the name of a model, or its folder, as `model`", seq2seq=True, truth=given_model,
      ours="loaded with its tokenizer, as in TRL; stock needs a model")  # fmt: skip
def model_name(side):
    folder = side.folder.with_name("model")
    make_model("t5").save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return weights(side.trained(str(folder), **texts("t5")))


@case(ARGUMENTS, "no `args`: the folder is `tmp_trainer`")
def no_arguments(side):
    return side.trainer_class(make_model("gpt2")).args.output_dir


# ---- saving and resuming ----


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@case(SAVING, "`save_model`, then `from_pretrained`", seq2seq=True)
def saved(side):
    side.trained(make_model("t5"), **texts("t5")).save_model(str(side.folder / "saved"))
    return AutoModelForSeq2SeqLM.from_pretrained(side.folder / "saved").state_dict()


@case(SAVING, "`training_args.bin`", seq2seq=True, truth=lambda side: False,
      ours="not written, because it is a pickle that contains `hub_token`; the settings are in "
      "training_settings.json")  # fmt: skip
def arguments_file(side):
    side.trained(make_model("t5"), **texts("t5")).save_model(str(side.folder / "saved"))
    return "training_args.bin" in files(side.folder / "saved")


def model_files(side):
    model = ["config.json", "generation_config.json", "model.safetensors"]
    return ["README.md", *model, "tokenizer.json", "tokenizer_config.json", "uncertainty.json"]


@case(SAVING, "files that `push_to_hub` uploads", seq2seq=True, truth=model_files,
      ours="the model, its card and `uncertainty.json`; stock also uploads `training_args.bin`")  # fmt: skip
def uploaded(side):
    trainer = side.trained(make_model("t5"), **texts("t5"))
    trainer.save_model()
    trainer.create_model_card()
    return sorted(collect_files(side.folder).files) if side.is_ours else files(side.folder)


def save_and_resume(side, writer, change=lambda checkpoint: None, make=lambda: make_model("gpt2"), **settings):
    """Resumes at step 2 of 4 what another trainer has saved."""
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, **texts("gpt2")}
    writer.trained(make(), **options)
    checkpoint = Path(writer.folder) / "checkpoint-2"
    change(checkpoint)
    trainer = side.trainer(make(), **{**options, **settings})
    trainer.train(resume_from_checkpoint=str(checkpoint))
    return log(trainer)[:-1], weights(trainer)


@case(SAVING, "`train(resume_from_checkpoint=...)`")
def resumed(side):
    return save_and_resume(side, side)


@case(SAVING, "resuming a checkpoint of a stock trainer")
def resumed_stock(side):
    return save_and_resume(side, type(side)("stock", side.folder.with_name("writer")))


@case(SAVING, "resuming a checkpoint that was sharded afterwards")
def resumed_shards(side):
    return save_and_resume(side, side, reshard)


@case(SAVING, "resuming with frozen parameters")
def resumed_frozen(side):
    def freeze():
        model = make_model("gpt2")
        model.transformer.wte.requires_grad_(False)
        return model

    return save_and_resume(side, side, make=freeze)


@case(
    SAVING,
    "resuming with another batch size",
    refused="was trained with another per_device_train_batch_size (4, now 2). Resume with the same settings, or set "
    "allow_config_change to continue with the new ones; the change is recorded.",
)
def resumed_batch_size(side):
    return save_and_resume(side, side, per_device_train_batch_size=2)


@case(SAVING, "resuming a checkpoint that does not exist")
def no_checkpoint(side):
    trainer = side.trainer(make_model("gpt2"), **texts("gpt2"))
    with pytest.raises(ValueError, match="Can't find a valid checkpoint at"):
        trainer.train(resume_from_checkpoint=str(side.folder / "checkpoint-9"))


def reshard(checkpoint):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    model.save_pretrained(checkpoint, max_shard_size="5KB")
    assert (checkpoint / "model.safetensors.index.json").exists()


@case(SAVING, "`save_total_limit`, names of checkpoints")
def total_limit(side):
    options = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
    side.trained(make_model("gpt2"), **options, **texts("gpt2"))
    return [name for name in files(side.folder) if name.startswith("checkpoint")]


@case(SAVING, "`save_strategy='best'`, `save_only_model`", seq2seq=True)
def save_best(side):
    options = {"save_strategy": "best", "save_only_model": True, "eval_strategy": "steps", "eval_steps": 1}
    side.trained(make_model("t5"), metric_for_best_model="loss", **options, **texts("t5"))
    return [name for name in files(side.folder) if name.startswith("checkpoint")]


@case(SAVING, "`load_best_model_at_end`, `metric_for_best_model`", seq2seq=True)
def best_model(side):
    options = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1,
               "load_best_model_at_end": True, "learning_rate": 0.1, "max_steps": 4}  # fmt: skip
    trainer = side.trained(make_model("t5"), **options, **texts("t5"))
    best = Path(trainer.state.best_model_checkpoint).name
    return best, trainer.state.best_metric, weights(trainer)
