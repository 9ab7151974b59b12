"""Models and data for those of transformers' tests that load some from the Hub: tiny, random, under the same names.

`from_pretrained` and `load_dataset` prefer a folder of the working directory to the Hub. What is there already stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)

from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.models.tokenizer import train_tokenizer


SIZE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
T5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
MBART = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}  # fmt: skip
PAIRS = [(str(row["source"]), str(row["target"])) for row in phrase_rows("train", 200)]
DATA = {
    "Salesforce/wikitext": ("wikitext-2-raw-v1", [{"text": source} for source, _ in PAIRS]),
    "openai/gsm8k": ("main", [{"question": source, "answer": target} for source, target in PAIRS]),
}


def make_tokenizers() -> dict[str, Any]:
    words = sorted({word for pair in PAIRS for text in pair for word in text.lower().split()})
    pieces = [(f"▁{word}", -float(number)) for number, word in enumerate(words)]
    special = {name: number for number, name in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))}
    causal = train_tokenizer((source for source, _ in PAIRS), 200, end_every_text=False)
    causal.bos_token = causal.eos_token
    return {
        "causal": causal,
        "bert": BertTokenizer({**special, **{word: 5 + number for number, word in enumerate(words)}}),
        "t5": T5Tokenizer([("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces]),
        "mbart": MBartTokenizer([("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces]),
    }


def save(model: Any, tokenizer: Any, names: Iterable[str]) -> None:
    for name in names:
        if not Path(name).exists():
            model.save_pretrained(name)
            tokenizer.save_pretrained(name)


def make_models() -> None:
    torch.manual_seed(0)
    kinds = make_tokenizers()
    sizes = {kind: {"vocab_size": len(tokenizer)} for kind, tokenizer in kinds.items()}
    causal = {**SIZE, **sizes["causal"], "num_key_value_heads": 1, "eos_token_id": 1, "bos_token_id": 1}
    save(Qwen2ForCausalLM(Qwen2Config(**causal)), kinds["causal"], ["trl-internal-testing/tiny-Qwen2ForCausalLM-2.5"])
    llama = LlamaForCausalLM(LlamaConfig(**causal))
    save(llama, kinds["causal"], ["hf-internal-testing/tiny-random-LlamaForCausalLM"])
    bert = BertForSequenceClassification(BertConfig(**SIZE, **sizes["bert"]))
    names = ("bert-base-cased", "bert-base-uncased", "google-bert/bert-base-uncased", "prajjwal1/bert-tiny")
    save(bert, kinds["bert"], names)
    save(T5ForConditionalGeneration(T5Config(**T5, **sizes["t5"])), kinds["t5"], ["google-t5/t5-small"])
    mbart = MBartForConditionalGeneration(MBartConfig(**MBART, **sizes["mbart"]))
    save(mbart, kinds["mbart"], ["sshleifer/tiny-mbart"])


def make_data() -> None:
    for name, (part, rows) in DATA.items():
        folder = Path(name)
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
            card = f"---\nconfigs:\n- config_name: {part}\n  data_files: rows.jsonl\n---\n"
            (folder / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    make_models()
    make_data()
