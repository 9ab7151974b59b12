import datasets
import pytest
import torch
from helpers import SENTENCES, VOCABULARY, log_lines, make_data, make_model, make_tokenizer, make_trainer
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from clue_hf.errors import UserError
from clue_hf.inputs.packing import PackingCollator, best_fit_decreasing, check_packable, pack_dataset
from clue_hf.objectives import CLUE, LabelSmoothing, Plain
from clue_hf.tasks import TextTask


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": VOCABULARY}
#: Models that see what is packed with a sequence: their own masks, no positions, or a state that runs on.
MIXING = {
    "opt": {**SMALL, "ffn_dim": 32, "word_embed_proj_dim": 16, "max_position_embeddings": 64},
    "falcon": SMALL,
    "bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": VOCABULARY},
    "mamba": {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "state_size": 4},
    "lfm2": {**SMALL, "num_key_value_heads": 1, "intermediate_size": 32, "full_attn_idxs": [1]},
}
APART = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2"]
ATTENTIONS = [*((kind, "eager") for kind in APART), *((kind, "sdpa") for kind in APART if kind != "gemma2")]


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(40, 100))
def test_every_length_is_packed_once_and_the_packs_are_full(lengths, capacity):
    packs = best_fit_decreasing(lengths, capacity)
    assert sorted(number for pack in packs for number in pack) == list(range(len(lengths)))
    filled = [sum(lengths[number] for number in pack) for pack in packs]
    assert all(0 < tokens <= capacity for tokens in filled)
    assert sum(2 * tokens <= capacity for tokens in filled) <= 1  # two half empty ones would be one


def packed_and_padded(model, objective, fused, **settings):
    """Loss, statistics and gradients of the same sequences, packed and padded."""
    tokenizer, data = make_tokenizer(), make_data("llama", rows=12)
    collate = PackingCollator(tokenizer, **settings)
    packed = pack_dataset(data, 40, None, "train")
    assert 1 < len(packed) < len(data)
    batches = [dict(collate(rows.to_list())) for rows in (packed, data)]
    assert {"input_ids", "labels", "position_ids"} == set(batches[0])
    results = []
    for batch in batches:
        task = TextTask(model, fused_head=fused)
        loss, rows = task.predict(model, batch, objective).reduce(objective, task.count([batch]))
        model.zero_grad()
        loss.backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        results.append((loss.detach(), rows.sum(0)[:-1], gradient, task.count_tokens([batch])))
    return results


@pytest.mark.parametrize(("kind", "attention"), ATTENTIONS)
@pytest.mark.parametrize("objective", [CLUE(0.7), LabelSmoothing(0.1), Plain()], ids=["clue", "smooth", "ce"])
def test_packed_sequences_give_the_padded_loss_and_gradients(kind, objective, attention):
    window = {"sliding_window": 4} if kind in ("mistral", "gemma2") else {}
    model = make_model(kind, **window)
    model.set_attn_implementation(attention)
    packed, padded = packed_and_padded(model, objective, "auto", pad_to_multiple_of=8)
    torch.testing.assert_close(packed[:2], padded[:2], rtol=1e-5, atol=1e-5)
    assert (packed[2] - padded[2]).norm() <= 1e-5 * padded[2].norm()
    assert packed[3] == padded[3] == sum(map(len, make_data("llama", rows=12)["input_ids"]))


@pytest.mark.parametrize("kind", APART)
def test_models_that_keep_sequences_apart_may_pack(kind):
    model = make_model(kind, dropout=True).train()
    state = torch.get_rng_state()
    check_packable(model)
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
    check_packable(model.to(torch.bfloat16))


@pytest.mark.parametrize("kind", MIXING)
def test_models_that_mix_packed_sequences_are_refused(kind, tmp_path):
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**{"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1, **MIXING[kind]})
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UserError, match="packing=True is not possible with this model: .*(mixes|no position_ids)"):
        make_trainer(model, tmp_path, packing=True)


def test_what_teaches_nothing_is_not_packed():
    rows = [{"input_ids": [5], "labels": [5]}, {"input_ids": [5, 6], "labels": [5, -100]}]
    good = {"input_ids": [7, 8, 9], "labels": [7, 8, 9]}
    [row] = pack_dataset(datasets.Dataset.from_list([*rows, good]), 8, None, "train")
    assert row == {"input_ids": [7, 8, 9], "labels": [-100, 8, 9], "position_ids": [0, 1, 2]}
    with pytest.raises(UserError, match="has a token to learn"):
        pack_dataset(datasets.Dataset.from_list(rows), 8, None, "train")


def texts(rows=8):
    return datasets.Dataset.from_dict({"text": (SENTENCES * 3)[:rows]})


def test_training_on_packed_rows_is_training_on_their_sequences(tmp_path):
    settings = {"max_length": 40, "max_steps": 3, "objective": "clue"}
    trainers = []
    for packing, size in ((True, 2), (False, 8)):
        trainer = make_trainer(
            make_model("llama"), tmp_path / str(packing), texts(), {"a": texts(5)}, make_tokenizer(False),
            packing=packing, per_device_train_batch_size=99, eval_strategy="steps", eval_steps=1,
            per_device_eval_batch_size=size, **settings,
        )  # fmt: skip
        trainer.train()
        trainers.append(trainer)
    packed, plain = trainers
    assert len(packed.train_dataset) < len(plain.train_dataset) == 8
    assert len(packed.eval_dataset["a"]) == 5  # evaluation data stays as it is
    for name in ("loss", "error", "uncertainty", "mean_token_accuracy", "num_tokens"):
        lines = [[line[name] for line in log_lines(trainer, "loss")] for trainer in trainers]
        assert lines[0] == pytest.approx(lines[1], rel=1e-4)
    lines = [[line["eval_a_loss"] for line in log_lines(trainer, "eval_a_loss")] for trainer in trainers]
    assert lines[0] == pytest.approx(lines[1], rel=1e-4)
    tokens = sum(map(len, plain.train_dataset["input_ids"]))
    assert [line["num_tokens"] for line in log_lines(packed)] == [tokens, 2 * tokens, 3 * tokens]


def test_packed_evaluation_data_gives_the_same_metrics(tmp_path):
    metrics = []
    for packing in (True, False):
        trainer = make_trainer(make_model("gpt2"), tmp_path, None, texts(), make_tokenizer(False), max_length=40,
                               eval_packing=packing, per_device_eval_batch_size=3)  # fmt: skip
        metrics.append(trainer.evaluate())
        assert (len(trainer.eval_dataset) < 8) == packing
    for name in ("loss", "error", "uncertainty", "calibration", "mean_token_accuracy"):
        assert metrics[0][f"eval_{name}"] == pytest.approx(metrics[1][f"eval_{name}"], rel=1e-5)
    packed = make_trainer(make_model("gpt2"), tmp_path, None, texts(), make_tokenizer(False), max_length=40,
                          eval_packing=True, predict_with_generate=True)  # fmt: skip
    with pytest.raises(UserError, match="Nothing can be generated for packed rows"):
        packed.predict(packed.eval_dataset)


def test_a_collator_of_ones_own_and_packing_are_refused(tmp_path):
    from clue_hf import CLUEConfig, CLUETrainer

    config = CLUEConfig(str(tmp_path), packing=True, use_cpu=True)
    with pytest.raises(ValueError, match="leave out `data_collator` or `packing`"):
        CLUETrainer(make_model("gpt2"), config, data_collator=list, processing_class=make_tokenizer())
    with pytest.raises(UserError, match="packing needs a tokenizer"):
        CLUETrainer(make_model("gpt2"), config)
    rows = torch.utils.data.Subset(make_data("gpt2"), [0])
    with pytest.raises(UserError, match=r"Packing needs a datasets.Dataset, but the train data is a Subset"):
        make_trainer(make_model("gpt2"), tmp_path, rows, packing=True)
