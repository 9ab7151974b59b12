"""What several test files share: tiny models, data of unequal lengths, a quiet trainer."""

import datasets
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.models.tokenizer import train_tokenizer


VOCABULARY = 61
SENTENCES = ["the cat eats an apple .", "you see the old car .", "my cousin sleeps now .", "do they buy a hat ?"] * 2
TRANSLATIONS = ["le chat mange une pomme .", "tu vois la vieille voiture .", "ma cousine dort .", "achètent-ils ?"] * 2
NO_DROPOUT = {"dropout_rate": 0.0, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
              "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}  # fmt: skip
SMALL = {
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
    "bart": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
             "max_position_embeddings": 64},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "llama": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_key_value_heads": 1, "max_position_embeddings": 64, "head_dim": 8},
}  # fmt: skip
SMALL["mt5"] = {**SMALL["t5"], "feed_forward_proj": "gated-gelu"}
SMALL |= dict.fromkeys(("marian", "mbart", "pegasus", "m2m_100"), SMALL["bart"])
SMALL |= dict.fromkeys(("gemma2", "mistral", "qwen2", "qwen3"), SMALL["llama"])
CAUSAL = ("gpt2", "llama", "gemma2", "mistral", "qwen2", "qwen3")


def make_model(kind, vocabulary=VOCABULARY, seed=0, dropout=False, **settings):
    """A randomly initialised model of a few thousand parameters, without dropout unless asked for."""
    torch.manual_seed(seed)
    config = CONFIG_MAPPING[kind]()
    quiet = {} if dropout else {name: value for name, value in NO_DROPOUT.items() if hasattr(config, name)}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1, "decoder_start_token_id": 0}
    if kind in CAUSAL:
        ids.pop("decoder_start_token_id")
    config = CONFIG_MAPPING[kind](**{"vocab_size": vocabulary, **ids, **quiet, **SMALL[kind], **settings})
    auto_class = AutoModelForCausalLM if kind in CAUSAL else AutoModelForSeq2SeqLM
    model = auto_class.from_config(config)
    with torch.no_grad():  # sharper than a fresh initialisation, so that error and entropy differ from token to token
        model.get_output_embeddings().weight.mul_(4)
        if getattr(model, "final_logits_bias", None) is not None:
            model.final_logits_bias.normal_()
    return model


def make_tokenizer(end_every_text=True):
    """A real tokenizer, trained on a few sentences."""
    return train_tokenizer(SENTENCES + TRANSLATIONS, VOCABULARY, end_every_text)


def make_data(kind, rows=16, seed=1, longest=12):
    """Tokenised pairs of unequal lengths; for causal models the source is a prompt without labels."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        length = int(torch.randint(low, high, (1,), generator=generator))
        return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()

    pairs = [(draw(3, 9), draw(2, longest)) for _ in range(rows)]
    if kind in CAUSAL:
        pairs = [(source + target, [-100] * len(source) + target) for source, target in pairs]
    return datasets.Dataset.from_list(
        [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels} for ids, labels in pairs]
    )


def make_batch(kind, rows=5, seed=1):
    """One padded batch."""
    from transformers import DataCollatorForSeq2Seq

    collate = DataCollatorForSeq2Seq(make_tokenizer())
    return dict(collate(make_data(kind, rows, seed).to_list()))


def make_trainer(model, output_dir, train=None, evaluation=None, processing_class=None, callbacks=None,
                 compute_metrics=None, peft_config=None, evaluator=None, **settings):  # fmt: skip
    """A quiet trainer that logs every step, clips nothing and takes the data in order."""
    defaults = {
        "max_steps": 2, "per_device_train_batch_size": 4, "logging_steps": 1, "save_strategy": "no",
        "disable_tqdm": True, "train_sampling_strategy": "sequential", "max_grad_norm": 1e9, "learning_rate": 1e-2,
        "report_to": "none", "use_cpu": True,
    }  # fmt: skip
    return CLUETrainer(
        model,
        CLUEConfig(str(output_dir), **{**defaults, **settings}),
        train_dataset=train,
        eval_dataset=evaluation,
        processing_class=processing_class or make_tokenizer(),
        callbacks=callbacks,
        compute_metrics=compute_metrics,
        peft_config=peft_config,
        evaluator=evaluator,
    )


def log_lines(trainer, key="loss"):
    """The lines of the trainer's log that hold a key."""
    return [line for line in trainer.state.log_history if key in line]
