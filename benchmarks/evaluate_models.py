"""The models with random weights of `evaluate.py`, whose texts are like real ones in length and frequent tokens."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration


VOCABULARY, BART_VOCABULARY = 32128, 50265
# Features of the T5 that have a meaning; all others are random.
START, POSITION, ONE, BIAS = range(4)


@torch.no_grad()
def make_model(tokenizer: Any, targets: list[str]) -> T5ForConditionalGeneration:
    """
    A T5 of t5-small's size whose texts end. Its weights are random, but for a few: a token's logit holds the logarithm
    of its frequency in the targets (other tokens never come), and that of the end token rises as 1 / step falls.
    """
    torch.manual_seed(0)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=tokenizer.pad_token_id, **ends)
    model = T5ForConditionalGeneration(config)
    for name, weight in model.named_parameters():
        if name.endswith(("o.weight", "wo.weight")):
            weight[: BIAS + 1] = 0
    width, embedding = config.d_model, model.shared.weight
    embedding[:, : BIAS + 1] = 0
    embedding[config.decoder_start_token_id, START] = width**0.5
    embedding[:, ONE] = width**0.5 / 4
    # one head looks at all tokens so far alike: what it reads of the start token falls with every step
    attention = model.decoder.block[0].layer[0].SelfAttention
    attention.q.weight[: config.d_kv] = 0
    attention.relative_attention_bias.weight[:, 0] = 0
    for place, (read, write) in enumerate(((START, POSITION), (ONE, BIAS))):
        attention.v.weight[place] = 0
        attention.v.weight[place, read] = 1
        attention.o.weight[:, place] = 0
        attention.o.weight[write, place] = 1
    # the output layer is the embedding: with random signs a token does not predict itself
    spread = 2.0
    final = model.decoder.final_layer_norm.weight
    final.copy_(spread * torch.randint(0, 2, final.shape).mul(2).sub(1))
    final[[START, ONE]] = 0
    # the two features come as about 4.4 / step and 1.5; large factors here keep small what the embedding must hold
    final[POSITION], final[BIAS] = -100 * width**0.5 / 4.4, 100 * width**0.5 / 1.5
    embedding[:, BIAS] = -30 / 100
    for token, logit in log_frequencies(tokenizer, targets).items():
        embedding[token, BIAS] = logit / 100
    embedding[tokenizer.eos_token_id, BIAS] = (spread**2 / 2 + 3.5) / 100
    embedding[tokenizer.eos_token_id, POSITION] = 60 / 100
    return model.eval()


@torch.no_grad()
def make_bart(tokenizer: Any, targets: list[str]) -> BartForConditionalGeneration:
    """
    A BART of 6 and 6 layers of width 512 whose texts end. Its weights are random, with random signs before the output
    layer, so that a token does not predict itself; the biases of its logits hold the logarithms of the tokens'
    frequencies in the targets, with one end in 20 tokens. The generation settings are those of bart-large-cnn, but for
    lengths and the first token.
    """
    torch.manual_seed(0)
    size = {"encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "encoder_layers": 6, "decoder_layers": 6}
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    end, start = tokenizer.eos_token_id, {"bos_token_id": None, "forced_eos_token_id": tokenizer.eos_token_id}
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": end, "decoder_start_token_id": end, **start}
    model = BartForConditionalGeneration(BartConfig(vocab_size=BART_VOCABULARY, d_model=512, **size, **heads, **ids))
    model.generation_config.update(no_repeat_ngram_size=3, num_beams=4, early_stopping=True, length_penalty=2.0)
    final = model.model.decoder.layers[-1].final_layer_norm.weight
    final.copy_(4.0 * torch.randint(0, 2, final.shape).mul(2).sub(1))
    model.final_logits_bias.fill_(-30)
    for token, logit in log_frequencies(tokenizer, targets).items():
        model.final_logits_bias[0, token] = logit
    model.final_logits_bias[0, end] = math.log(1 / 20)
    return model.eval()


def log_frequencies(tokenizer: Any, texts: list[str]) -> dict[int, float]:
    """Of the tokens that stay one token when they are decoded and encoded again."""
    counts = Counter(token for ids in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in ids)
    words = [token for token in counts if tokenizer(tokenizer.decode([token]))["input_ids"][:-1] == [token]]
    total = sum(counts[token] for token in words)
    return {token: math.log(counts[token] / total) for token in words}


#: The models by the value of `--model`: how each is made, and what a table says of it.
MODELS = {
    "t5": (
        make_model,
        f"a T5 of t5-small's size and a vocabulary of {VOCABULARY:,} with random weights, but for a few that make its "
        "texts end after some twenty tokens (`make_model`)",
    ),
    "bart": (
        make_bart,
        f"a BART of 6 and 6 layers of width 512 and a vocabulary of {BART_VOCABULARY:,} with random weights, whose "
        "texts end after some twenty tokens, with the generation settings of bart-large-cnn but for lengths "
        "(`make_bart`)",
    ),
}
