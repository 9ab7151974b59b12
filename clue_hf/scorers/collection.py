"""One pass over the sources that feeds every scorer: generate, sample, and score without the source.

The log-probabilities are the model's own, before any temperature, top-k or minimum length, and the same for greedy,
beam and sampled decoding. Greedy texts and samples come with them from one decoding loop; a text that was decoded by
`generate` (beams, special settings) is scored afterwards by a teacher-forced pass over its tokens. Only a few numbers
per token are kept, never a distribution over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..kernels.fused_linear import Temperature
from ..models.inference import inference
from ..models.kind import unwrap
from ..models.mc_dropout import active_dropout
from ..models.tokenizer import with_padding
from ..tasks import TextTask
from ..tasks.head import is_sharded
from .by_similarity import compare_texts
from .collected import Batch, Collected, CollectionSettings, ScoredText
from .decoding import Decoder, by_source
from .processors import decodes_plainly, processor_settings
from .reading import Reader, model_inputs, repeated
from .sampling import sampler, stream_seed, warper
from .similarity import load_similarity
from .truth import truth_question


#: Number of the stream of a sampled output, which is not one of the samples 0, 1, 2 ...
OUTPUT = -1
#: Settings of `generate` for a greedy text.
GREEDY = {"do_sample": False, "num_beams": 1}


class Collector:
    """
    Runs a model over sources and collects what scorers need.

    Args:
        model ([`~transformers.PreTrainedModel`] or PEFT model):
            A sequence-to-sequence or causal language model.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            Its tokenizer.
        needs (`set[str]`):
            `"samples"`, `"unconditional"`, `"flatness"`, `"p_true"`, `"hidden"`: any of them or none.
        settings ([`CollectionSettings`], *optional*):
            How to generate.
        temperature (`Callable`, *optional*):
            A [`~clue_hf.posthoc.token_temperature.TokenTemperature`] or head: all probabilities are those of the
            logits divided by it. What is decoded greedily or by beams stays the same.
        similarities (`Iterable[str]`, *optional*):
            How to compare the output with the samples, and these with each other.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        needs: set[str] | frozenset[str],
        settings: CollectionSettings | None = None,
        temperature: Temperature | None = None,
        similarities: Iterable[str] = (),
    ) -> None:
        self.model, self.tokenizer = model, with_padding(tokenizer)
        self.needs, self.settings, self.temperature = needs, settings or CollectionSettings(), temperature
        self.task = TextTask(model, tokenizer=self.tokenizer)
        self.reader = Reader(model, self.tokenizer, self.task.kind, self.settings)
        self._own_loop: bool | None = None
        threshold, device = self.settings.similarity_threshold, unwrap(model).device
        self.similarities = {name: load_similarity(name, threshold, device) for name in similarities}

    def collect(
        self,
        sources: Sequence[str],
        targets: Sequence[str | list[int]] | None = None,
        references: Sequence[str] | None = None,
    ) -> list[Collected]:
        """
        One entry per source, in their order. With `targets` those are scored and nothing is generated; `references`
        are scored beside what is generated.
        """
        by_row: dict[int, Collected] = {}
        batches = self.plan(sources)
        for batch in tqdm(batches, desc="Generating", disable=len(batches) < 3):
            texts, expected = (
                None if column is None else [column[row] for row in batch.rows] for column in (targets, references)
            )
            by_row.update(zip(batch.rows, self.collect_batch(batch, texts, expected), strict=True))
        return [by_row[row] for row in range(len(sources))]

    def plan(self, sources: Sequence[str], first_row: int = 0, batch_size: int | None = None) -> list[Batch]:
        """
        The sources as batches of similar length, which pad little. `first_row` is the number of the first source where
        these are part of more, `batch_size` by default that of the settings.
        """
        prompts, cut = self.reader.encode_sources(list(sources))
        order = sorted(range(len(sources)), key=lambda row: len(prompts[row]))
        size = batch_size or self.settings.batch_size
        parts = (order[start : start + size] for start in range(0, len(order), size))
        return [
            Batch([first_row + row for row in part], [prompts[row] for row in part], [cut[row] for row in part])
            for part in parts
        ]

    def collect_batch(
        self,
        batch: Batch,
        targets: Sequence[str | list[int]] | None = None,
        references: Sequence[str] | None = None,
    ) -> list[Collected]:
        """One entry per row of a batch; see [`Collector.collect`]. A target may also be given by its tokens."""
        with inference(self.model):
            context = self.reader.read(batch.prompts)
            if targets is not None:
                collected = [Collected(text) for text in self._score(context, self._target_tokens(targets))]
            else:
                collected = self._generated(context, batch)
            self._complete(collected, context, batch, references)
        return collected

    def stream(self, batch: Batch) -> Generator[tuple[int, np.ndarray, bool], None, Collected]:
        """
        The tokens of one source's output as they are decoded, each with its statistics and whether it is the last;
        returns the same entry as [`Collector.collect_batch`].
        """
        steps = self._streamed(batch)
        while True:
            with inference(self.model):  # not while the caller has the token
                try:
                    token = next(steps)
                except StopIteration as end:
                    return end.value
            yield token

    def _streamed(self, batch: Batch) -> Generator[tuple[int, np.ndarray, bool], None, Collected]:
        context = self.reader.read(batch.prompts)
        self._check_streamable(context, batch)
        decoder, seeds = self._decoder(batch, greedy=True)
        steps = []
        for step in decoder.steps(context, seeds):
            steps.append(step)
            number, tokens, statistics = step
            if number[0] == 0:  # the greedy text is the first, until it ends
                token = int(tokens[0])
                last = token in decoder.ends or len(steps) == self.settings.max_new_tokens
                yield token, statistics[0].double().cpu().numpy(), last
        [texts] = self._scored_texts(by_source(steps, [len(row) for row in seeds]))
        collected = Collected(texts[0], samples=texts[1:])
        self._complete([collected], context, batch)
        return collected

    def _check_streamable(self, context: dict[str, Any], batch: Batch) -> None:
        if self.settings.mc_samples:
            reason = "with mc_samples the probabilities come from passes over the finished text"
        elif self._decoding(batch) != GREEDY:
            reason = "the output is not decoded greedily"
        elif not self._has_own_loop(context):
            reason = "the model, its generation config or `compat` needs transformers' own `generate`"
        else:
            return
        raise UserError(f"The tokens cannot be streamed with their probabilities: {reason}.")

    def _complete(
        self,
        collected: list[Collected],
        context: dict[str, Any],
        batch: Batch,
        references: Sequence[str] | None = None,
    ) -> None:
        """Adds what else the scorers need to know of the outputs."""
        outputs = [entry.output.tokens for entry in collected]
        for entry, prompt in zip(collected, batch.prompts, strict=True):
            entry.source_tokens = len(prompt)
        if references is not None:
            self._add_references(collected, context, self.reader.encode_targets(references))
        if "unconditional" in self.needs:
            for entry, values in zip(collected, self._unconditional(outputs), strict=True):
                entry.unconditional = values
        if "hidden" in self.needs:
            for entry, vector in zip(collected, self._pooled(context, outputs), strict=True):
                entry.hidden = vector
        if "p_true" in self.needs:
            self._ask_for_truth(collected, batch)
        if "samples" in self.needs and not collected[0].samples:
            self._add_samples(collected, context, batch)
        compare_texts(collected, self.similarities)

    def reference_tokens(self, batch: Batch, references: Sequence[str]) -> tuple[torch.Tensor, ...]:
        """What the output layer is applied to for each token of the references, the tokens, and their rows."""
        with inference(self.model):
            inputs = self._read_with(batch.prompts, self.reader.encode_targets(references))
            hidden, labels, place = self.task.head_inputs(self.model, inputs)
        return hidden, labels, torch.tensor(batch.rows, device=place.device)[place]

    def pooled_references(self, batch: Batch, references: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The mean over each reference's tokens of what the output layer is applied to; the same without sources."""
        tokens, nothing = self.reader.encode_targets(references), [self.reader.empty_source()] * len(references)
        with inference(self.model):
            with_source, without = (
                self._pooled(self.reader.read(prompts), tokens) for prompts in (batch.prompts, nothing)
            )
        return with_source, without

    def reference_logits(self, batch: Batch, references: Sequence[str]) -> torch.Tensor:
        """The model's own logits, whatever the temperature, for each token of the references: (tokens, vocabulary)."""
        with inference(self.model):
            inputs = self._read_with(batch.prompts, self.reader.encode_targets(references))
            return self.task.logits(self.model, *self.task.split_labels(self.model, inputs))

    def output_logits(self, prompt: list[int], tokens: list[int]) -> torch.Tensor:
        """The logits that each token of an output was chosen from: (tokens, vocabulary)."""
        with inference(self.model):
            inputs = self.task.split_labels(self.model, self._read_with([prompt], [tokens]))
            return self.task.logits(self.model, *inputs, self.temperature)

    def _read_with(self, prompts: list[list[int]], outputs: list[list[int]]) -> dict[str, Any]:
        return self.reader.teacher_forced(self.reader.read(prompts), outputs)

    def _generated(self, context: dict[str, Any], batch: Batch) -> list[Collected]:
        """An output for each row, and its samples where the same loop can decode them."""
        settings = self._decoding(batch)
        if settings != GREEDY or not self._has_own_loop(context):
            outputs = self._generate(context, settings)
            return [Collected(text) for text in self._score(context, outputs)]
        decoded = self._decoded(context, batch, greedy=True)
        collected = [Collected(texts[0], samples=texts[1:]) for texts in decoded]
        if self.settings.mc_samples:
            outputs = [entry.output.tokens for entry in collected]
            for entry, scored in zip(collected, self._score(context, outputs), strict=True):
                entry.output = scored
        return collected

    def _has_own_loop(self, context: dict[str, Any]) -> bool:
        """Whether [`Decoder`] can take the place of `generate`; tested once."""
        if self._own_loop is None:
            trial = self.reader.teacher_forced(context, [[self.tokenizer.pad_token_id]] * len(context["prompts"]))
            inputs, _ = self.task.split_labels(self.model, trial)
            plain = decodes_plainly(self.model) and not is_sharded(self.model)
            self._own_loop = plain and self.task.may_fuse(self.model, inputs)
        return self._own_loop

    def _decoded(self, context: dict[str, Any], batch: Batch, greedy: bool) -> list[list[ScoredText]]:
        """The greedy text of each row, if wanted, and then its samples, if needed, from one loop."""
        decoder, seeds = self._decoder(batch, greedy)
        return self._scored_texts(decoder.decode(context, seeds))

    def _decoder(self, batch: Batch, greedy: bool) -> tuple[Decoder, list[list[int | None]]]:
        count = self.settings.num_samples if "samples" in self.needs else 0
        first: list[int | None] = [None] if greedy else []
        seeds = [[*first, *self._sample_seeds(prompt, count)] for prompt in batch.prompts]
        limit, warp = self.settings.max_new_tokens, warper(**self._sampling())
        calibration = (self.temperature, "flatness" in self.needs, processor_settings(self.settings.generation))
        decoder = Decoder(self.model, self._end_tokens(), self.tokenizer.pad_token_id, limit, warp, *calibration)
        return decoder, seeds

    def _scored_texts(self, decoded: list[list[tuple[list[int], np.ndarray]]]) -> list[list[ScoredText]]:
        return [[self._scored_text(*text) for text in texts] for texts in decoded]

    def _decoding(self, batch: Batch) -> dict[str, Any]:
        """
        How the output is generated, but for what forces or forbids tokens, which counts for samples too. Where the
        output is sampled, each source has its own random stream.
        """
        processed = processor_settings(self.settings.generation)
        chosen = {name: value for name, value in self.settings.generation.items() if name not in processed}
        settings = {**GREEDY, **chosen}
        if not settings["do_sample"] or settings["num_beams"] > 1:
            return settings
        warpers = {name: settings.pop(name) for name in ("temperature", "top_k", "top_p") if name in settings}
        seeds = [stream_seed(self.settings.seed, prompt, OUTPUT) for prompt in batch.prompts]
        return {**settings, "do_sample": False, "logits_processor": sampler(seeds, self.model.device, **warpers)}

    def _unconditional(self, outputs: list[list[int]]) -> list[np.ndarray]:
        """ln p(y_t | y_<t) of each output under the empty source."""
        nothing = self.reader.read([self.reader.empty_source()] * len(outputs))
        return [scored.log_probability for scored in self._score(nothing, outputs)]

    def _ask_for_truth(self, collected: list[Collected], batch: Batch) -> None:
        """How probable it is to the model that its output is a true answer to the source."""
        asked = [
            truth_question(self.tokenizer, prompt, entry.output.text)
            for entry, prompt in zip(collected, batch.prompts, strict=True)
        ]
        questions, answers = map(list, zip(*asked, strict=True))
        try:
            scored = self._score(self.reader.read(questions), answers)
        except IndexError as error:  # an embedding of positions that has come to its end
            limit = getattr(unwrap(self.model).config, "max_position_embeddings", "")
            raise UserError(
                f"A question of `p_true` is longer than the {limit} positions of the model: lower max_source_length, "
                "or leave out `p_true`."
            ) from error
        for entry, text in zip(collected, scored, strict=True):
            entry.true_log_probability = float(text.log_probability.sum())

    def _add_references(
        self, collected: list[Collected], context: dict[str, Any], references: list[list[int]]
    ) -> None:
        """Scores the references; where there is a token calibrator, also without it."""
        temperatures = [self.temperature, *([] if self.temperature is None else [None])]
        scored = self._score_each(context, references, temperatures)
        for entry, reference, uncalibrated in zip(collected, scored[0], scored[-1], strict=True):
            entry.reference = reference
            entry.uncalibrated_reference = None if self.temperature is None else uncalibrated

    def _add_samples(self, collected: list[Collected], context: dict[str, Any], batch: Batch) -> None:
        if self._has_own_loop(context):
            for entry, texts in zip(collected, self._decoded(context, batch, greedy=False), strict=True):
                entry.samples = texts
            return
        count = self.settings.num_samples
        seeds = [seed for prompt in batch.prompts for seed in self._sample_seeds(prompt, count)]
        draw = sampler(seeds, self.model.device, self.temperature, **self._sampling())
        more = repeated(context, count)
        tokens = self._generate(more, {**GREEDY, "logits_processor": draw})
        [samples] = self._describe(more, tokens, [self.temperature])
        for number, entry in enumerate(collected):
            entry.samples = samples[number * count : (number + 1) * count]

    def _sample_seeds(self, prompt: list[int], count: int) -> list[int]:
        return [stream_seed(self.settings.seed, prompt, sample) for sample in range(count)]

    def _sampling(self) -> dict[str, Any]:
        return self.settings.sampling

    def _generate(self, context: dict[str, Any], settings: dict[str, Any]) -> list[list[int]]:
        """Token ids of a text per prompt, the end token included, the prompt left out."""
        inputs = model_inputs(context)
        if "encoder_outputs" in inputs:
            inputs["input_ids"] = context["source_ids"]  # not encoded again, but read by encoder_no_repeat_ngram_size
            # a copy, because generate expands its inputs in place
            inputs["encoder_outputs"] = BaseModelOutput(inputs["encoder_outputs"].last_hidden_state)
        start = 1 if self.reader.is_seq2seq else context["input_ids"].shape[1]
        tokens = self.model.generate(
            **inputs,
            max_length=start + self.settings.max_new_tokens,  # beside the model's own, max_new_tokens makes it warn
            max_new_tokens=None,
            use_cache=True,
            return_dict_in_generate=False,
            **{**settings, **processor_settings(self.settings.generation)},
        )
        return [self._until_end(row) for row in tokens[:, start:].tolist()]

    def _score(self, context: dict[str, Any], outputs: list[list[int]]) -> list[ScoredText]:
        """Each output as the model sees it, by its mean distribution over dropout where that is asked for."""
        return self._score_each(context, outputs, [self.temperature])[0]

    def _score_each(
        self, context: dict[str, Any], outputs: list[list[int]], temperatures: list[Temperature | None]
    ) -> list[list[ScoredText]]:
        """The same by each of several temperatures (`None`: the model's own)."""
        if not self.settings.mc_samples:
            return self._describe(context, outputs, temperatures)
        inputs = (
            self.reader.read_ids(context["prompts"]) if self.reader.is_seq2seq else context
        )  # the encoder's dropout counts too
        with active_dropout(self.model, self.settings.seed):
            return self._describe(inputs, outputs, temperatures, self.settings.mc_samples)

    def _describe(
        self,
        context: dict[str, Any],
        outputs: list[list[int]],
        temperatures: list[Temperature | None],
        passes: int = 1,
    ) -> list[list[ScoredText]]:
        """Log-probability and entropy of each token by each temperature, from a teacher-forced pass."""
        inputs, with_flatness = self.reader.teacher_forced(context, outputs), "flatness" in self.needs
        described = self.task.describe_each(self.model, inputs, temperatures, passes, with_flatness)
        starts = self.reader.label_starts(context)
        return [
            [
                self._scored_text(tokens, row[start : start + len(tokens)])
                for tokens, row, start in zip(outputs, rows.double().cpu().numpy(), starts, strict=True)
            ]
            for rows in described
        ]

    def _pooled(self, context: dict[str, Any], outputs: list[list[int]]) -> np.ndarray:
        """The mean over the tokens of each output of what the output layer is applied to: (outputs, features)."""
        hidden, _, row = self.task.head_inputs(self.model, self.reader.teacher_forced(context, outputs))
        sums = hidden.new_zeros(len(outputs), hidden.shape[1], dtype=torch.float64).index_add_(0, row, hidden.double())
        return (sums / row.bincount(minlength=len(outputs)).clamp(min=1).unsqueeze(1)).cpu().numpy()

    def _scored_text(self, tokens: list[int], described: np.ndarray) -> ScoredText:
        ended = bool(tokens) and tokens[-1] in self._end_tokens()
        error, entropy, confidence, correct, *flatness = described.T
        return ScoredText(self.text_of(tokens), tokens, -error, entropy, confidence, correct, ended, *flatness)

    def text_of(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True)).strip()

    def _until_end(self, tokens: list[int]) -> list[int]:
        """The tokens up to and with the first end token: what follows is padding."""
        ends = self._end_tokens()
        return next((tokens[: index + 1] for index, token in enumerate(tokens) if token in ends), tokens)

    def _end_tokens(self) -> set[int]:
        ends = self.model.generation_config.eos_token_id
        if ends is None:
            ends = self.tokenizer.eos_token_id
        return set(ends) if isinstance(ends, (list, tuple)) else {ends}

    def _target_tokens(self, targets: Sequence[str | list[int]]) -> list[list[int]]:
        return [self.reader.encode_targets([text])[0] if isinstance(text, str) else list(text) for text in targets]
