"""What a CLUEConfig is besides a dataclass, and that it ignores none of transformers' settings."""

import ast
import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import transformers
from transformers import HfArgumentParser, Seq2SeqTrainingArguments, TrainingArguments

import clue_hf
from clue_hf import CLUEConfig
from clue_hf.config import CommandConfig
from clue_hf.errors import UserError


#: Read by our own code: where.
OURS = {
    "average_tokens_across_devices": "trainer.py", "data_seed": "trainer.py", "seed": "trainer.py",
    "eval_use_gather_object": "training/measuring.py", "generation_config": "trainer.py",
    "gradient_accumulation_steps": "trainer.py", "gradient_checkpointing": "trainer.py",
    "hub_always_push": "training/pushing.py", "hub_model_id": "training/pushing.py",
    "hub_private_repo": "training/pushing.py", "hub_revision": "training/pushing.py",
    "hub_strategy": "training/pushing.py", "hub_token": "training/pushing.py",
    "label_smoothing_factor": "config.py", "length_column_name": "trainer.py",
    "logging_nan_inf_filter": "training/measuring.py", "optim_args": "trainer.py", "output_dir": "training/saving.py",
    "predict_with_generate": "training/measuring.py", "remove_unused_columns": "inputs/text.py",
    "save_total_limit": "training/saving.py", "train_sampling_strategy": "trainer.py",
}  # fmt: skip
#: Refused where they are set: a value, and what is said.
REFUSED = {"sortish_sampler": (True, "has no effect"), "use_liger_kernel": (True, "replaces the loss")}
#: Of use to others than the trainer: why.
NOT_FOR_THE_TRAINER = {
    "do_train": "for scripts", "do_eval": "for scripts", "do_predict": "for scripts",
    "resume_from_checkpoint": "for scripts, which hand it to train()",
    "local_rank": "for the parser: the launcher passes it, and PartialState reads the environment",
    "liger_kernel_config": "goes with use_liger_kernel, which is refused",
}  # fmt: skip
#: Read by transformers, in code that we call or inherit and do not replace: by which file of transformers.
INHERITED = {
    "trainer.py": (
        "accelerator_config auto_find_batch_size batch_eval_metrics bf16 bf16_full_eval dataloader_drop_last "
        "dataloader_in_order dataloader_multiprocessing_context dataloader_num_workers dataloader_persistent_workers "
        "dataloader_pin_memory dataloader_prefetch_factor ddp_broadcast_buffers ddp_bucket_cap_mb "
        "ddp_find_unused_parameters ddp_static_graph debug deepspeed disable_tqdm enable_jit_checkpoint "
        "eval_accumulation_steps eval_do_concat_batches eval_on_start eval_strategy fp16 fp16_full_eval fsdp "
        "fsdp_config full_determinism gradient_checkpointing_kwargs greater_is_better ignore_data_skip "
        "include_for_metrics include_num_input_tokens_seen label_names learning_rate load_best_model_at_end "
        "lr_scheduler_kwargs lr_scheduler_type max_grad_norm max_steps metric_for_best_model neftune_noise_alpha "
        "num_train_epochs optim parallelism_config per_device_train_batch_size prediction_loss_only push_to_hub "
        "report_to restore_callback_states_from_checkpoint save_only_model save_strategy skip_memory_metrics "
        "torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps use_cache weight_decay"
    ),
    "trainer_seq2seq.py": "generation_max_length generation_num_beams",
    "trainer_callback.py": "eval_delay logging_first_step logging_strategy",
    "trainer_optimizer.py": "adam_beta1 adam_beta2 adam_epsilon optim_target_modules warmup_steps",
    "training_args.py": (
        "ddp_backend ddp_timeout eval_steps log_level log_level_replica log_on_each_node logging_steps "
        "per_device_eval_batch_size save_on_each_node save_steps tf32 use_cpu"
    ),
    "integrations/integration_utils.py": (
        "project run_name trackio_bucket_id trackio_space_id trackio_static_space_id"
    ),
}


def attributes_read(path):
    """The names that a Python file reads as attributes."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_no_setting_of_transformers_is_ignored(tmp_path):
    inherited = {name: path for path, names in INHERITED.items() for name in names.split()}
    classes = [set(OURS), set(REFUSED), set(NOT_FOR_THE_TRAINER), set(inherited)]
    assert sum(map(len, classes)) == len(set.union(*classes)), "a setting is listed twice"
    # a new version of transformers with a new setting fails here: find out who honours it
    assert set.union(*classes) == {known.name for known in dataclasses.fields(Seq2SeqTrainingArguments)}
    for places, package in ((OURS, clue_hf), (inherited, transformers)):
        root = Path(inspect.getfile(package)).parent
        read = {path: attributes_read(root / path) for path in set(places.values())}
        assert [name for name, path in places.items() if name not in read[path]] == []
    for name, (value, said) in REFUSED.items():
        with pytest.raises(ValueError, match=said):
            CLUEConfig(str(tmp_path), **{name: value})


@dataclass
class ScriptArguments:
    """As run_translation.py and run_summarization.py have them."""

    source_lang: str | None = None
    max_source_length: int | None = field(default=1024)
    max_target_length: int | None = field(default=128)
    val_max_target_length: int | None = None
    pad_to_max_length: bool = False
    preprocessing_num_workers: int | None = None
    num_beams: int | None = 1
    source_prefix: str | None = None


def test_scripts_of_transformers_keep_their_options():
    parser = HfArgumentParser((ScriptArguments, CLUEConfig))
    options = ["--output_dir", "o", "--source_prefix", "x: ", "--max_target_length", "9", "--alpha", "0.5"]
    script, config = parser.parse_args_into_dataclasses(options)
    assert (script.source_prefix, script.max_target_length) == ("x: ", 9)
    assert (config.alpha, config.source_prefix, config.max_target_length) == (0.5, "", 128)
    (config,) = HfArgumentParser(CommandConfig).parse_args_into_dataclasses(options)
    assert (config.source_prefix, config.max_target_length) == ("x: ", 9)


@dataclass
class OwnConfig(CLUEConfig):
    """A user's config, written as for any other dataclass."""

    extra: int = 1

    def __post_init__(self):
        super().__post_init__()
        self.extra += 1


@pytest.mark.parametrize("config_class", [CLUEConfig, CommandConfig, OwnConfig])
def test_settings_that_scripts_have_too_are_as_good_as_fields(config_class):
    config = config_class("o", source_prefix="x: ", max_target_length=9, preprocessing_num_workers=2)
    copies = [
        copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config)), dataclasses.replace(config),
        dataclasses.replace(config, alpha=0.4), config_class(**config.to_dict()),
    ]  # fmt: skip
    for other in copies:
        found = (
            other.source_prefix,
            other.max_source_length,
            other.max_target_length,
            other.preprocessing_num_workers,
        )
        assert found == ("x: ", 512, 9, 2)
    assert dataclasses.replace(config, source_prefix="y").source_prefix == "y"
    assert config_class("o").source_prefix == ""
    assert getattr(config, "extra", 2) == 2


def test_arguments_of_transformers_become_a_config(tmp_path):
    stock = Seq2SeqTrainingArguments(
        str(tmp_path), eval_strategy="steps", eval_steps=3, hub_token="secret", generation_max_length=7, seed=3,
        lr_scheduler_kwargs={"a": 1}, accelerator_config={"split_batches": True}, report_to="none", warmup_steps=0.1,
        include_for_metrics=["inputs"], gradient_checkpointing_kwargs={"use_reentrant": False}, use_cpu=True,
        label_names=["labels"],
    )  # fmt: skip
    config = CLUEConfig.from_arguments(stock)
    ours = {"ddp_find_unused_parameters", "dataloader_pin_memory"}  # settled by a CLUEConfig
    for known in dataclasses.fields(stock):
        if known.init and known.name not in ours:
            assert getattr(config, known.name) == getattr(stock, known.name), known.name
    assert config.alpha == 0.9


def test_what_a_subclass_of_transformers_arguments_has_besides(tmp_path):
    @dataclass
    class Arguments(TrainingArguments):
        temperature: float = 2.0
        padding_free: bool = False

    assert CLUEConfig.from_arguments(Arguments(str(tmp_path), use_cpu=True)).temperature == 2.0
    with pytest.raises(UserError, match="padding_free"):
        CLUEConfig.from_arguments(Arguments(str(tmp_path), use_cpu=True, padding_free=True))
