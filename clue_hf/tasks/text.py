"""The text task: an item is one target token of a language model, or one labelled token of a token classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerBase
from transformers.utils import logging

from ..errors import UserError
from ..functional import error_and_entropy
from ..inputs.packing import PackingCollator, count_packed_tokens, is_packed
from ..inputs.text import check_tokens, prepare_text_dataset
from ..kernels import fused_linear_objective, logit_statistics, statistics_by_temperature
from ..kernels.fused_linear import Temperature, divided
from ..models.kind import text_task, unwrap
from ..models.tokenizer import with_padding
from .base import AuxiliaryLoss, Prediction, Task, add_auxiliary, describe_items
from .head import gathered_head, head_replaced, vocabulary_of, why_not_fusable


if TYPE_CHECKING:
    from ..config import CLUEConfig
    from ..objectives import Objective

logger = logging.get_logger(__name__)
Kind = Literal["seq2seq", "causal", "token"]


@dataclass
class FusedPrediction:
    """Items whose error and entropy are found while the loss is reduced, without holding their logits."""

    hidden: torch.Tensor
    model: nn.Module
    labels: torch.Tensor
    auxiliary: AuxiliaryLoss | None = None
    outputs: None = None

    def reduce(self, objective: Objective, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See [`Prediction.reduce`]."""
        items, sequences = counts
        example = _example_of_each_label(self.labels)

        def loss_with_sequences(error, uncertainty, example, **statistics):
            first = int(example[0])
            part = Prediction(error, uncertainty, example - first, int(example[-1]) - first + 1)
            whole = part.sequence_losses(objective) * (items / sequences)
            return torch.cat([objective.item_loss(error, uncertainty, **statistics), whole])

        with gathered_head(self.model) as head:
            loss, error, uncertainty, *others, correct = fused_linear_objective(
                self.hidden,
                head.weight,
                self.labels,
                loss_with_sequences if objective.has_sequence_loss else objective.item_loss,
                bias=head.bias,
                low_rank=head.low_rank(self.hidden),
                num_items=items,
                segments=example if objective.has_sequence_loss else None,
                row_statistics=objective.row_statistics,
                return_items=True,
                return_correct=True,
            )
        kept = self.labels != -100
        statistics = dict(zip(objective.row_statistics, others, strict=True))
        prediction = Prediction(error, uncertainty, example[kept], len(self.labels), correct=correct)
        sums = prediction.statistics(objective, objective.item_loss(error, uncertainty, **statistics))
        return add_auxiliary(loss, sums, self.auxiliary, items)


class TextTask(Task):
    """
    Language modelling on `labels`, with -100 for tokens that do not count.

    Args:
        model ([`~transformers.PreTrainedModel`] or a PEFT model):
            A sequence-to-sequence model, a causal one, whose position i predicts token i + 1, or a token classifier
            or masked language model, whose position i predicts the label of token i.
        kind (`str`, *optional*, defaults to `"auto"`):
            `"seq2seq"`, `"causal"` or `"token"`; by default as the model's config says, one of the first two.
        fused_head (`str`, *optional*, defaults to `"auto"`):
            `"auto"`, `"on"` or `"off"`, see [`CLUEConfig`].
        tokenizer ([`~transformers.PreTrainedTokenizerBase`], *optional*):
            Prepares raw texts; not needed for datasets that are already tokenised.
        formatting_func (`Callable`, *optional*):
            Makes a text of each row of a raw dataset.
    """

    accuracy = "mean_token_accuracy"

    def __init__(
        self,
        model: nn.Module,
        kind: str = "auto",
        fused_head: str = "auto",
        tokenizer: PreTrainedTokenizerBase | None = None,
        formatting_func: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        _refuse_virtual_tokens(model)
        _refuse_hidden_losses(unwrap(model))
        self.vocabularies = _vocabularies(unwrap(model))
        self.kind: Kind = text_task(unwrap(model).config) if kind == "auto" else kind  # type: ignore[assignment]
        self.fused_head = fused_head
        self.tokenizer = None if tokenizer is None else with_padding(tokenizer)
        self.formatting_func = formatting_func
        # by the type of the model that is called: the bare one, or one wrapped for several processes
        self._fusable: dict[type, bool] = {}

    def prepare(self, dataset: Any, config: CLUEConfig, name: str, training: bool = False) -> Any:
        if self.tokenizer is not None:
            options = (self.formatting_func, training, self.has_own_collator)
            dataset = prepare_text_dataset(dataset, self.tokenizer, self.kind, config, name, *options)
        check_tokens(dataset, self.vocabularies, name)
        return dataset

    def collator(self, config: CLUEConfig) -> Any:
        if self.tokenizer is None:
            return None
        packs = config.packing or config.eval_packing
        collator = PackingCollator if packs else DataCollatorForSeq2Seq
        return collator(self.tokenizer, pad_to_multiple_of=config.pad_to_multiple_of)

    def predict(
        self, model: nn.Module, inputs: dict[str, Any], objective: Objective, return_outputs: bool = False
    ) -> Prediction | FusedPrediction:
        base = unwrap(model)
        if inputs.get("labels") is None and inputs.get("shift_labels") is None:
            raise ValueError(
                "The batch has no `labels`: give the dataset a target column, or tokenise it with labels."
            )
        inputs, labels = self.split_labels(base, inputs)
        if size := self.vocabularies["labels"]:
            self.check_labels(labels, size)
        if not (return_outputs or objective.needs_logits) and self.may_fuse(model, inputs):
            self.num_classes = vocabulary_of(base)
            hidden, auxiliary = self._hidden_with_auxiliary(model, base, inputs, labels)
            return FusedPrediction(hidden, model, labels, auxiliary)

        outputs = model(**inputs)
        auxiliary = _auxiliary_loss(base, outputs)
        self.num_classes = outputs["logits"].shape[-1]
        kept = labels != -100
        logits, targets = self._aligned(outputs["logits"], labels)[kept], labels[kept]
        error, entropy = error_and_entropy(logits, targets)
        example = _example_of_each_label(labels)[kept]
        outputs = outputs if return_outputs else None
        correct = logits.detach().argmax(-1) == targets
        items = (error, entropy, example, len(labels), targets, logits, outputs)
        return Prediction(*items, correct=correct, auxiliary=auxiliary)

    def describe(
        self, model: nn.Module, inputs: dict[str, Any], passes: int = 1, temperature: Temperature | None = None
    ) -> torch.Tensor:
        """
        Error, entropy, top-1 probability and top-1 correctness of each label: (rows, labels, 4), NaN if ignored. With
        several passes (of a model whose dropout is active), those of the mean of their distributions.
        """
        return self.describe_each(model, inputs, [temperature], passes)[0]

    @torch.no_grad()
    def describe_each(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        temperatures: Sequence[Temperature | None],
        passes: int = 1,
        with_flatness: bool = False,
    ) -> list[torch.Tensor]:
        """
        The same by each of several temperatures (`None`: the model's own), from one pass of the model; with two more
        columns, the [`~clue_hf.kernels.flatness.flatness`], where they are asked for.
        """
        base = unwrap(model)
        inputs, labels = self.split_labels(base, inputs)
        kept = labels != -100
        if self.may_fuse(model, inputs):
            hidden = torch.stack([self._hidden(model, base, inputs, labels)[kept] for _ in range(passes)])
            with gathered_head(model) as gathered:
                head = gathered.merged()
                each = statistics_by_temperature(
                    hidden, head.weight, labels[kept], temperatures, bias=head.bias, with_flatness=with_flatness
                )
        else:
            sums: dict[int, torch.Tensor] = {}
            for _ in range(passes):
                logits = self.logits(model, inputs, labels)
                for number, temperature in enumerate(temperatures):
                    more = divided(logits.clone(), None, temperature).log_softmax(-1)
                    sums[number] = torch.logaddexp(sums[number], more) if number in sums else more
            each = [
                logit_statistics(sums[number], labels[kept], with_flatness=with_flatness)
                for number in range(len(temperatures))
            ]
        return [describe_items(kept, statistics) for statistics in each]

    def head_inputs(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What the output layer is applied to for each label that counts, those labels, and their rows."""
        base = unwrap(model)
        inputs, labels = self.split_labels(base, inputs)
        if not self.may_fuse(model, inputs):
            raise UserError(
                f"The output layer cannot be applied apart from the model: {why_not_fusable(model, inputs)}."
            )
        kept = labels != -100
        return self._hidden(model, base, inputs, labels)[kept], labels[kept], kept.nonzero()[:, 0]

    def logits(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        labels: torch.Tensor,
        temperature: Temperature | None = None,
    ) -> torch.Tensor:
        """The float32 logits behind each label that counts, divided by their temperature: (items, vocabulary)."""
        kept, hidden = labels != -100, None
        if temperature is not None and self.may_fuse(model, inputs):
            hidden = self._hidden(model, unwrap(model), inputs, labels)[kept]
            with gathered_head(model) as gathered:
                head = gathered.merged()
                logits = nn.functional.linear(hidden, head.weight, head.bias)
        else:
            logits = self._aligned(model(**inputs)["logits"], labels)[kept]
        return divided(logits.float(), hidden, temperature)

    def count(self, batches: list[dict[str, Any]]) -> torch.Tensor:
        kept = [self._targets(batch) != -100 for batch in batches]
        return torch.stack([torch.stack([rows.sum(), rows.any(-1).sum()]) for rows in kept]).sum(0)

    def count_tokens(self, batches: list[dict[str, Any]]) -> torch.Tensor | None:
        counts = [_count_tokens(batch) for batch in batches]
        return None if any(count is None for count in counts) else torch.stack(counts).sum()  # type: ignore[arg-type]

    def generation_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if self.kind == "token":
            return super().generation_inputs(inputs)
        if is_packed(inputs):
            raise UserError("Nothing can be generated for packed rows: leave out eval_packing.")
        dropped = ("labels", "shift_labels", "decoder_input_ids", "decoder_attention_mask", "position_ids")
        kept = {name: value for name, value in inputs.items() if name not in dropped}
        return kept if self.kind == "seq2seq" else self._prompts(inputs)

    def _prompts(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The tokens before the first label of each row, padded on the left as generation needs them."""
        ids, labels = inputs["input_ids"], inputs["labels"]
        attention = inputs.get("attention_mask")
        attention = torch.ones_like(ids) if attention is None else attention
        before = ((labels != -100).cumsum(-1) == 0) & attention.bool()
        width = int(before.sum(-1).max().clamp(min=1))
        padding = 0 if self.tokenizer is None else self.tokenizer.pad_token_id
        prompts, mask = ids.new_full((len(ids), width), padding), attention.new_zeros(len(ids), width)
        for row, chosen in enumerate(before):
            length = int(chosen.sum())
            prompts[row, width - length :] = ids[row, chosen]
            mask[row, width - length :] = 1
        return {"input_ids": prompts, "attention_mask": mask}

    def _targets(self, inputs: dict[str, Any]) -> torch.Tensor:
        """The labels that are predicted, one column per predicting position."""
        if inputs.get("shift_labels") is not None:
            return inputs["shift_labels"]
        return inputs["labels"][:, 1:] if self.kind == "causal" else inputs["labels"]

    def split_labels(self, model: Any, inputs: dict[str, Any]) -> tuple[dict[str, Any], torch.Tensor]:
        """Model inputs without labels (the model must not compute a loss of its own), and the targets."""
        rest = {name: value for name, value in inputs.items() if name not in ("labels", "shift_labels")}
        has_decoder_inputs = any(rest.get(name) is not None for name in ("decoder_input_ids", "decoder_inputs_embeds"))
        if self.kind == "seq2seq" and not has_decoder_inputs:
            rest["decoder_input_ids"] = _decoder_inputs(unwrap(model), inputs["labels"])
        if self.kind == "causal" and is_packed(rest):
            rest["use_cache"] = False  # with a cache, transformers does not look for packed sequences
        return rest, self._targets(inputs)

    def _hidden(self, model: nn.Module, base: Any, inputs: dict[str, Any], labels: torch.Tensor) -> torch.Tensor:
        """What the output layer would be applied to, for each label."""
        return self._hidden_with_auxiliary(model, base, inputs, labels)[0]

    def _hidden_with_auxiliary(
        self, model: nn.Module, base: Any, inputs: dict[str, Any], labels: torch.Tensor
    ) -> tuple[torch.Tensor, AuxiliaryLoss | None]:
        with head_replaced(base):
            outputs = model(**inputs)
        return self._aligned(outputs["logits"], labels), _auxiliary_loss(base, outputs)

    @staticmethod
    def _aligned(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """A causal model has one output more than there are targets: the one after the last token."""
        return outputs[:, : labels.shape[1]]

    def may_fuse(self, model: nn.Module, inputs: dict[str, Any]) -> bool:
        """Whether the output layer can be applied by us; found out once, with the first inputs (without labels)."""
        if type(model) not in self._fusable:
            reason = "fused_head='off'" if self.fused_head == "off" else why_not_fusable(model, inputs)
            if reason is not None and self.fused_head == "on":
                raise ValueError(f"fused_head='on' is not possible here: {reason}. Use 'auto' or 'off'.")
            self._fusable[type(model)] = reason is None
            if reason is not None and self.fused_head == "auto":
                note = logger.info if self.kind == "token" else logger.warning  # few classes need no fused head
                note(f"The output layer is not fused with the loss, which runs on the logits: {reason}.")
        return self._fusable[type(model)]


def _decoder_inputs(model: Any, labels: torch.Tensor) -> torch.Tensor:
    """The labels one step later, as the model does it; M2M100 (NLLB) does it in its forward only, as BART does."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(labels=labels)
    from transformers.models.bart.modeling_bart import shift_tokens_right

    return shift_tokens_right(labels, model.config.pad_token_id, model.config.decoder_start_token_id)


def _count_tokens(batch: dict[str, Any]) -> torch.Tensor | None:
    if is_packed(batch):
        return count_packed_tokens(batch["position_ids"])
    if batch.get("attention_mask") is not None:
        return batch["attention_mask"].sum()
    ids = batch.get("input_ids")
    return None if ids is None else torch.tensor(ids.numel(), device=ids.device)


def _example_of_each_label(labels: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(labels), device=labels.device).unsqueeze(1).expand_as(labels)


def _auxiliary_loss(model: Any, outputs: dict[str, Any]) -> AuxiliaryLoss | None:
    """What a model adds to its loss for the balance of its experts, if it computes that (`output_router_logits`)."""
    if (value := outputs.get("aux_loss")) is None:
        return None
    names, places = ("router_aux_loss_coef", "aux_loss_coef"), (model, model.config.get_text_config())
    weights = [getattr(place, name) for place in places for name in names if hasattr(place, name)]
    if not weights:
        raise UserError(
            f"{type(model).__name__} has an auxiliary loss without a weight that is known (router_aux_loss_coef): "
            "set model.config.output_router_logits = False to train without it."
        )
    return AuxiliaryLoss(value, weights[0]) if torch.is_tensor(value) else None  # 0 without any router


def _refuse_hidden_losses(model: Any) -> None:
    """Raises where a model has auxiliary losses that it computes beside its own loss only."""
    config = model.config
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "output_router_logits", False):
        raise UserError(
            f"The auxiliary losses of {type(model).__name__} are not supported: set "
            "model.config.output_router_logits = False to train without them, or use transformers' Trainer."
        )


def _refuse_virtual_tokens(model: nn.Module) -> None:
    for name, config in (getattr(model, "peft_config", None) or {}).items():
        if getattr(config, "is_prompt_learning", False):
            raise ValueError(
                f"The PEFT adapter {name!r} ({config.peft_type}) puts virtual tokens before the text, so that outputs "
                "and labels no longer line up. Use LoRA or another adapter without virtual tokens."
            )


def _vocabularies(model: Any) -> dict[str, int | None]:
    """Sizes of a model's inputs and outputs: Marian models may have two vocabularies, token classifiers classes."""
    config = model.config.get_text_config()
    size = getattr(config, "vocab_size", None)
    classes = config.num_labels if "ForTokenClassification" in type(model).__name__ else None
    return {"input_ids": size, "labels": classes or getattr(config, "decoder_vocab_size", None) or size}
