"""
How alike texts are, by their words or by a model: found once for each source, for all scorers that need it.

`exact` (the same words), `jaccard` (words in common), `rougeL` (words in common in the same order), or a model by Hub
id or folder: one that embeds texts, or one that classifies natural language inference.
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from ..errors import UserError
from ..models.inference import inference
from ..models.loading import load_config, load_tokenizer, load_weights


#: Texts, or pairs of texts, that run through a model together.
BATCH_SIZE = 32
#: Longest text that a model compares, in tokens.
MAX_LENGTH = 512


@dataclass(frozen=True)
class Likeness:
    """
    Some texts compared with each other.

    Args:
        similarity (`np.ndarray` of shape `(texts, texts)`):
            From 0 to 1, symmetric; 1 for equal texts.
        equivalent (`np.ndarray` of shape `(texts, texts)`):
            Whether two texts count as the same.
    """

    similarity: np.ndarray
    equivalent: np.ndarray


class Similarity(ABC):
    """Compares texts. `compare` gets several groups of texts at once, and compares the texts of each group."""

    def compare(self, groups: Sequence[Sequence[str]]) -> list[Likeness]:
        """The likeness of the texts of each group."""
        distinct = [list(dict.fromkeys(texts)) for texts in groups]
        compared = []
        for texts, known, likeness in zip(groups, distinct, self._compare(distinct), strict=True):
            places = {text: place for place, text in enumerate(known)}
            each = np.ix_(*[[places[text] for text in texts]] * 2)
            compared.append(Likeness(likeness.similarity[each], likeness.equivalent[each]))
        return compared

    @abstractmethod
    def _compare(self, groups: list[list[str]]) -> list[Likeness]:
        """The same for groups in which no text comes twice."""


class WordSimilarity(Similarity):
    """
    By the words of two texts.

    Args:
        read (`Callable`):
            From a text to what is compared.
        similarity (`Callable`):
            From two of these to a number from 0 to 1.
        threshold (`float`):
            Similarity from which on texts are equivalent.
    """

    def __init__(self, read: Callable[[str], Any], similarity: Callable[[Any, Any], float], threshold: float) -> None:
        self.read, self.similarity, self.threshold = read, similarity, threshold

    def _compare(self, groups: list[list[str]]) -> list[Likeness]:
        return [self._likeness([self.read(text) for text in texts]) for texts in groups]

    def _likeness(self, texts: list[Any]) -> Likeness:
        matrix = np.eye(len(texts))
        for one, other in combinations(range(len(texts)), 2):
            matrix[one, other] = matrix[other, one] = self.similarity(texts[one], texts[other])
        return Likeness(matrix, matrix >= self.threshold)


class ModelSimilarity(Similarity):
    """By a model. A text longer than the model's positions, or 512 tokens, is cut."""

    def __init__(self, model: Any, tokenizer: Any, threshold: float) -> None:
        self.model, self.tokenizer, self.threshold = model, tokenizer, threshold
        positions = getattr(model.config, "max_position_embeddings", None) or MAX_LENGTH
        self.max_length = min(MAX_LENGTH, positions, tokenizer.model_max_length)

    def _run(self, inputs: list[Any], read: Callable[[Any, dict[str, Any]], torch.Tensor]) -> list[np.ndarray]:
        """What is read from the model's outputs, for each text or pair of texts; in batches of similar length."""
        order = sorted(range(len(inputs)), key=lambda place: len(str(inputs[place])))
        rows: dict[int, np.ndarray] = {}
        for start in range(0, len(order), BATCH_SIZE):
            places = order[start : start + BATCH_SIZE]
            encoded = self.tokenizer(
                [inputs[place] for place in places],
                padding=True,
                truncation=True,
                max_length=self.max_length,
                return_tensors="pt",
            ).to(self.model.device)
            with inference(self.model):
                values = read(self.model(**encoded), encoded).double().cpu().numpy()
            rows.update(zip(places, values, strict=True))
        return [rows[place] for place in range(len(inputs))]


class EmbeddingSimilarity(ModelSimilarity):
    """By the cosine of two embeddings, the mean of a model's last hidden states; less than 0 counts as 0."""

    def _compare(self, groups: list[list[str]]) -> list[Likeness]:
        texts = list(dict.fromkeys(text for group in groups for text in group))
        vectors = dict(zip(texts, self._run(texts, _embeddings), strict=True))
        return [self._likeness(np.stack([vectors[text] for text in group])) for group in groups]

    def _likeness(self, vectors: np.ndarray) -> Likeness:
        matrix = (vectors @ vectors.T).clip(0.0, 1.0)
        np.fill_diagonal(matrix, 1.0)
        return Likeness(matrix, matrix >= self.threshold)


class EntailmentSimilarity(ModelSimilarity):
    """
    By the probability that one text entails the other, the mean of both directions; texts of which each most likely
    entails the other are equivalent, whatever the threshold.
    """

    def _compare(self, groups: list[list[str]]) -> list[Likeness]:
        labels = {str(label).lower(): number for label, number in self.model.config.label2id.items()}
        entailment = labels["entailment"]
        pairs = list(dict.fromkeys(pair for group in groups for pair in permutations(group, 2)))
        values = self._run([list(pair) for pair in pairs], lambda outputs, _: outputs.logits.softmax(-1))
        probabilities = dict(zip(pairs, values, strict=True))
        compared = []
        for group in groups:
            entails, is_likely = np.eye(len(group)), np.eye(len(group), dtype=bool)
            for one, other in permutations(range(len(group)), 2):
                classes = probabilities[group[one], group[other]]
                entails[one, other], is_likely[one, other] = classes[entailment], classes.argmax() == entailment
            compared.append(Likeness((entails + entails.T) / 2, is_likely & is_likely.T))
        return compared


def _embeddings(outputs: Any, encoded: dict[str, Any]) -> torch.Tensor:
    """The mean of the last hidden states of each text, of length 1; padding does not count."""
    mask = encoded["attention_mask"].unsqueeze(-1).double()
    means = (outputs.last_hidden_state.double() * mask).sum(1) / mask.sum(1).clamp(min=1)
    return torch.nn.functional.normalize(means, dim=-1)


def normalized_words(text: str) -> tuple[str, ...]:
    """The words of a text without case and punctuation; of a text that is nothing but punctuation, all of it."""
    letters = "".join(letter for letter in text.casefold() if not unicodedata.category(letter).startswith("P"))
    return tuple(letters.split() or text.split())


def jaccard(one: set[str], other: set[str]) -> float:
    """Share of the words of either that both have; 1 where neither has any."""
    return len(one & other) / len(one | other) if one or other else 1.0


def rouge_words(text: str) -> tuple[str, ...]:
    """The words of a text as ROUGE reads them; in scripts that it cannot read, what is between spaces."""
    return tuple(_rouge_tokenizer().tokenize(text) or text.casefold().split())


@lru_cache(maxsize=1)
def _rouge_tokenizer() -> Any:
    from rouge_score.tokenizers import DefaultTokenizer

    return DefaultTokenizer(use_stemmer=True)


def rouge_l(one: Sequence[str], other: Sequence[str]) -> float:
    """F1 of the longest common subsequence; 1 where neither text has a word."""
    if not one and not other:
        return 1.0
    return 2 * common_length(one, other) / (len(one) + len(other))


def common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """
    Length of the longest common subsequence. The row of the usual table is held in the bits of one number: bit i is 0
    where the table rises at i.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    row = everything = (1 << len(one)) - 1
    for word in other:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & everything
    return len(one) - row.bit_count()


#: The similarities by words: what of a text is compared, and how.
WORD_SIMILARITIES: dict[str, tuple[Callable[[str], Any], Callable[[Any, Any], float]]] = {
    "exact": (normalized_words, lambda one, other: float(one == other)),
    "jaccard": (lambda text: set(text.lower().split()), jaccard),
    "rougeL": (rouge_words, rouge_l),
}


@lru_cache(maxsize=4)
def load_similarity(name: str, threshold: float, device: torch.device) -> Similarity:
    """A similarity by its name; everything that is not one of [`WORD_SIMILARITIES`] is a model."""
    if name in WORD_SIMILARITIES:
        return WordSimilarity(*WORD_SIMILARITIES[name], threshold)
    try:
        config = load_config(name)
    except UserError as error:
        raise UserError(
            f"`similarity` must be {', '.join(WORD_SIMILARITIES)} or a model by Hub id or folder: {error}"
        ) from error
    classifies = any("ForSequenceClassification" in architecture for architecture in config.architectures or [])
    if not classifies:
        model = load_weights(AutoModel, name, "float32", config=config).to(device)
        return EmbeddingSimilarity(model, load_tokenizer(name), threshold)
    if "entailment" not in {str(label).lower() for label in config.label2id}:
        raise UserError(
            f"`similarity`: {name!r} is a classifier of {', '.join(map(str, config.label2id))}, not of natural "
            "language inference. Give one with a label 'entailment', or a model that embeds texts."
        )
    model = load_weights(AutoModelForSequenceClassification, name, "float32", config=config).to(device)
    return EntailmentSimilarity(model, load_tokenizer(name), threshold)
