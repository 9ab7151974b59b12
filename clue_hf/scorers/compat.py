"""
The numbers of LM-Polygraph 0.7.0, for comparison with results made by it: `compat="lm-polygraph"`.

Ours differ on purpose. Theirs, reproduced here as they are at batch size 1 (they change with the batch):
- every text has at least two tokens, and at the first two steps the end token's logit is lowered to the smallest one
  before probabilities are taken; samples come from the 50 most probable tokens;
- `pmi`: the encoder reads the generated text instead of nothing, the decoder reads it without a start token, and m_t
  is read late, after y_t and y_{t+1}: the probability that y_t comes again; the first token has none;
- `cpmi`: the same, with the two values of its authors the wrong way round;
- `renyi_divergence`, `fisher_rao`: the divergences themselves, which are highest where the model is most certain;
- `semantic_entropy`: a sample that is drawn several times adds its probability to that of its group each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..kernels import logit_statistics
from ..kernels.flatness import FLATNESS
from ..kernels.fused_linear import Temperature
from ..models.kind import unwrap
from .base import Scorer
from .by_similarity import SemanticEntropy
from .collected import Collected, ScoredText
from .collection import Collector
from .density import Density
from .formulas import ConditionalPointwiseMutualInformation, FisherRao, RenyiDivergence, make_scorer


#: Tokens that must come before the end.
MIN_NEW_TOKENS = 2
#: Most probable tokens that are sampled from.
TOP_K = 50


class PolygraphConditionalMutualInformation(ConditionalPointwiseMutualInformation):
    """`cpmi` of LM-Polygraph 0.7.0: lambda 3.599 and tau 0.0656, which its authors give the other way round."""

    def __init__(self) -> None:
        super().__init__(cpmi_lambda=3.599, cpmi_tau=0.0656)


@dataclass(frozen=True)
class PolygraphRenyiDivergence(RenyiDivergence):
    """`renyi_divergence` of LM-Polygraph 0.7.0: the divergence itself, highest for certain texts, minus `2 ln V`."""

    vocabulary: int

    def score(self, collected: Collected) -> float:
        return -super().score(collected) - 2 * math.log(self.vocabulary)


class PolygraphFisherRao(FisherRao):
    """`fisher_rao` of LM-Polygraph 0.7.0: the distance itself, highest for certain texts."""

    def score(self, collected: Collected) -> float:
        return -super().score(collected)


class PolygraphSemanticEntropy(SemanticEntropy):
    """`semantic_entropy` of LM-Polygraph 0.7.0: a sample that is drawn twice counts twice in `p(c_s)`."""

    def _identity(self, number: int, sample: ScoredText) -> int:
        return number


def polygraph_scorer(name: str, similarity: str | None, density: Density | None, model: Any) -> Scorer:
    """A scorer by its name, as LM-Polygraph 0.7.0 has it; those of a density are ours."""
    scorer = make_scorer(name, similarity, density)
    if name == "cpmi":
        return PolygraphConditionalMutualInformation()
    if name == "renyi_divergence":
        return PolygraphRenyiDivergence(len(unwrap(model).get_output_embeddings().weight))
    if name == "fisher_rao":
        return PolygraphFisherRao()
    return PolygraphSemanticEntropy(scorer.similarity) if isinstance(scorer, SemanticEntropy) else scorer


class PolygraphCollector(Collector):
    """Collects what LM-Polygraph 0.7.0 would."""

    def _has_own_loop(self, context: dict[str, Any]) -> bool:
        return False  # it has a minimum length

    def _generate(self, context: dict[str, Any], settings: dict[str, Any]) -> list[list[int]]:
        return super()._generate(context, {"min_new_tokens": MIN_NEW_TOKENS, **settings})

    def _sampling(self) -> dict[str, Any]:
        return {"top_k": TOP_K, **self.settings.sampling}

    def _score_each(
        self, context: dict[str, Any], outputs: list[list[int]], temperatures: list[Temperature | None]
    ) -> list[list[ScoredText]]:
        return self._describe(context, outputs, temperatures)

    def _describe(
        self,
        context: dict[str, Any],
        outputs: list[list[int]],
        temperatures: list[Temperature | None],
        passes: int = 1,
    ) -> list[list[ScoredText]]:
        each = super()._describe(context, outputs, temperatures)
        beginnings = self._first_tokens(context, outputs)
        for text, first in ((text, first) for scored in each for text, first in zip(scored, beginnings, strict=True)):
            count = len(first)
            error, text.entropy[:count], text.confidence[:count], text.correct[:count], *flatness = first.T
            text.log_probability[:count] = -error
            for name, values in zip(FLATNESS, flatness, strict=False):
                getattr(text, name)[:count] = values
        return each

    def _first_tokens(self, context: dict[str, Any], outputs: list[list[int]]) -> list[np.ndarray]:
        """The first two tokens of each output, described under the lowered end token."""
        beginnings = [tokens[:MIN_NEW_TOKENS] for tokens in outputs]
        inputs, labels = self.task.split_labels(self.model, self.reader.teacher_forced(context, beginnings))
        logits, kept = self.task.logits(self.model, inputs, labels), labels[labels != -100]
        for end in self._end_tokens():
            logits[:, end] = logits.min(-1).values
        described = logit_statistics(logits, kept, with_flatness="flatness" in self.needs)
        statistics = torch.stack([column.float() for column in described], -1)
        return np.split(statistics.double().cpu().numpy(), np.cumsum([len(tokens) for tokens in beginnings])[:-1])

    def _unconditional(self, outputs: list[list[int]]) -> list[np.ndarray]:
        return [self._read_late(tokens) for tokens in outputs]

    def _read_late(self, tokens: list[int]) -> np.ndarray:
        read = self.tokenizer(self.tokenizer.decode(tokens))["input_ids"]
        if len(read) < len(tokens):
            read = tokens
        ids = torch.tensor([read], device=self.model.device)
        decoder = {"decoder_input_ids": ids} if self.reader.is_seq2seq else {}
        logits = self.model(input_ids=ids, **decoder)["logits"][0, -len(tokens) :]
        late = logits.float().log_softmax(-1)[range(len(tokens)), tokens].double().cpu().numpy()
        late[:1] = 0
        return late
