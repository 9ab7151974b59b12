"""What is collected for the scorers: an output and its samples as numbers per token, and how they are generated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import UserError
from ..settings import check_choice, check_minimum
from .similarity import Likeness


@dataclass
class ScoredText:
    """
    A text with, for each of its tokens (the end token included if it came), its log-probability and the entropy (nats)
    of its distribution, the probability of that distribution's best token, and whether this was the token.
    """

    text: str
    tokens: list[int]
    log_probability: np.ndarray
    entropy: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray
    ended: bool
    #: the [`~clue_hf.kernels.flatness.flatness`] of each token's distribution, where a scorer of the output needs it
    uniform_log_ratio: np.ndarray | None = None
    log_affinity: np.ndarray | None = None

    @property
    def length_without_end(self) -> int:
        return len(self.tokens) - self.ended


@dataclass
class Collected:
    """What the scorers know about one source."""

    output: ScoredText
    #: ln p(y_t | y_<t) of the output's tokens with an empty source
    unconditional: np.ndarray | None = None
    #: ln p of "True", asked whether the output is a true answer to the source
    true_log_probability: float | None = None
    #: the mean over the output's tokens of what the output layer is applied to
    hidden: np.ndarray | None = None
    samples: list[ScoredText] = field(default_factory=list)
    #: by the name of a similarity, how alike the output (first) and the samples are
    likeness: dict[str, Likeness] = field(default_factory=dict)
    #: the reference, if there is one, as the model sees it, and as it does without its token calibrator
    reference: ScoredText | None = None
    uncalibrated_reference: ScoredText | None = None
    #: number of tokens of the source, its prefix included
    source_tokens: int = 0


@dataclass(frozen=True)
class Batch:
    """Sources that run through the model together: the numbers of their rows, their token ids, which were cut."""

    rows: list[int]
    prompts: list[list[int]]
    cut: list[bool]


@dataclass
class CollectionSettings:
    """
    How texts are generated and sampled.

    Args:
        max_new_tokens (`int`):
            Longest output.
        generation (`dict`):
            More settings of `generate` for the output itself: `num_beams`, or `do_sample` with `temperature` ...; by
            default it is greedy. Settings that force, forbid or penalise tokens (`forced_bos_token_id`,
            `bad_words_ids`, `no_repeat_ngram_size` ...) count for the samples too, as those of the model's generation
            config do.
        num_samples (`int`):
            Samples per source for the scorers that need them.
        sampling (`dict`):
            `temperature`, `top_k` and `top_p` of the samples. By default they come from the model's own distribution.
        source_prefix (`str`):
            Text put before every source; the empty source of `pmi` goes without it unless `pmi_source="prefix"`.
        mc_samples (`int`):
            With K > 0 the probabilities of a text's tokens are the mean over K passes with dropout active; what is
            generated and sampled stays as it is. All texts share the masks of the K passes, so that the scores of a
            text do not depend on its batch.
        similarity (`str`, *optional*):
            How texts are compared by the scorers that do: `"exact"`, `"jaccard"`, `"rougeL"`, or a model by Hub id or
            folder, see `clue_hf/scorers/similarity.py`. By default each scorer has its own.
        similarity_threshold (`float`):
            Similarity from which on two texts count as the same (`semantic_entropy`).
        compat (`str`, *optional*):
            `"lm-polygraph"`: as LM-Polygraph 0.7.0 computes it, see `clue_hf/scorers/compat.py`.
        seed (`int`):
            Seed of the samples and of dropout. The samples of a source follow from it and from the source alone.
        batch_size (`int`):
            Sources that run through the model together.
    """

    max_new_tokens: int = 128
    max_source_length: int = 512
    generation: dict[str, Any] = field(default_factory=dict)
    num_samples: int = 10
    sampling: dict[str, Any] = field(default_factory=dict)
    source_prefix: str = ""
    pmi_source: str = "empty"
    mc_samples: int = 0
    similarity: str | None = None
    similarity_threshold: float = 0.9
    compat: str | None = None
    batch_size: int = 16
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_source_length", "num_samples", "batch_size"):
            check_minimum(1, **{name: getattr(self, name)})
        check_minimum(0, mc_samples=self.mc_samples)
        if not 0 < self.similarity_threshold <= 1:
            raise UserError(f"`similarity_threshold` must be above 0 and at most 1, not {self.similarity_threshold}.")
        check_choice("pmi_source", self.pmi_source, ("empty", "prefix"))
        if self.compat is not None:
            check_choice("compat", self.compat, ("lm-polygraph",))
