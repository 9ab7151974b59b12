"""The synthetic phrase grammar: its French, its true distributions, its splits and its determinism."""

import hashlib
import math
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clue_hf.data.embedded import phrases
from clue_hf.data.embedded.phrases import (
    HELD_OUT_PAIRS,
    HELD_OUT_WORDS,
    LARGEST_SIZES,
    RARE_WORDS,
    SPLITS,
    load_phrases,
    phrase_rows,
)


JOINERS = {"and", "but", "because"}


@pytest.fixture(scope="module")
def train() -> list[dict]:
    return phrase_rows("train", 8000)


@pytest.fixture(scope="module")
def shifted() -> list[dict]:
    return phrase_rows("shifted", 600)


def target_distribution(source: str) -> dict[str, float]:
    """Every valid target of a source with its probability; ValueError for a source outside the grammar."""
    clauses, words = phrases._read(source), phrases._words(source)
    distribution = {}
    for translations in product(*(phrases.DICTIONARY[word] for word in words)):
        choice = dict(zip(words, translations, strict=True))
        distribution[phrases._french(clauses, choice)] = math.prod(
            phrases.DICTIONARY[word][choice[word]] for word in words
        )
    return distribution


def sources(rows: list[dict]) -> set[str]:
    return {row["source"] for row in rows}


def vocabulary(rows: list[dict], column: str = "source") -> set[str]:
    return {word for row in rows for word in row[column].split()}


def singular_pairs(source: str) -> set[str]:
    """Neighbouring words, with the plural ending of the second taken away."""
    return {f"{first} {second.removesuffix('s')}" for first, second in pairwise(source.split())}


# ---- French ----
ONE_TARGET = [
    ("i eat an apple .", "je mange une pomme ."),
    ("i buy the orange .", "j'achète l'orange ."),
    ("i did not help my father .", "je n'ai pas aidé mon père ."),
    ("we eat some small apples .", "nous mangeons de petites pommes ."),
    ("we do not eat some apples .", "nous ne mangeons pas de pommes ."),
    ("she does not buy an orange .", "elle n'achète pas d'orange ."),
    ("he does not see the old kid .", "il ne voit pas le vieil enfant ."),
    ("the old kids wait .", "les vieux enfants attendent ."),
    ("a new bird sings .", "un nouvel oiseau chante ."),
    ("my new birds sang .", "mes nouveaux oiseaux ont chanté ."),
    ("he washes the red table today .", "il lave la table rouge aujourd'hui ."),
    ("he found my orange at my school .", "il a trouvé mon orange à mon école ."),
    ("he found my green orange at the market .", "il a trouvé mon orange verte au marché ."),
    ("the girls will sleep near the garden .", "les filles vont dormir près du jardin ."),
    ("the boy slept near the school .", "le garçon a dormi près de l'école ."),
    ("the boy slept near the dogs .", "le garçon a dormi près des chiens ."),
    ("the boy slept near some dogs .", "le garçon a dormi près de chiens ."),
    ("the boy slept near an island .", "le garçon a dormi près d'une île ."),
    ("the boy slept at the schools .", "le garçon a dormi aux écoles ."),
    ("will she forget the big hats tomorrow ?", "est-ce qu'elle va oublier les grands chapeaux demain ?"),
    ("does a tired girl see the clock ?", "est-ce qu'une fille fatiguée voit l'horloge ?"),
    ("he waits because she sleeps .", "il attend parce qu'elle dort ."),
    ("i waited but we will see the purple lamp .", "j'ai attendu mais nous allons voir la lampe violette ."),
]


@pytest.mark.parametrize(("source", "target"), ONE_TARGET)
def test_unambiguous_sources_have_one_correct_translation(source: str, target: str) -> None:
    assert target_distribution(source) == {target: 1.0}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("you eat the cake .", {"tu manges le gâteau .": 0.7, "vous mangez le gâteau .": 0.3}),
        ("did they sleep ?", {"est-ce qu'ils ont dormi ?": 0.6, "est-ce qu'elles ont dormi ?": 0.4}),
        ("the small cousin sings .", {"le petit cousin chante .": 0.5, "la petite cousine chante .": 0.5}),
        ("my old friend sings .", {"mon vieil ami chante .": 0.6, "ma vieille amie chante .": 0.4}),
        ("my friend sings .", {"mon ami chante .": 0.6, "mon amie chante .": 0.4}),
        ("he does not buy a car .", {"il n'achète pas de voiture .": 0.8, "il n'achète pas d'auto .": 0.2}),
        ("we sleep now .", {"nous dormons maintenant .": 0.75, "nous dormons à présent .": 0.25}),
        # the same word twice is one choice, so that the two clauses speak to the same person
        ("you sing but you wait .", {"tu chantes mais tu attends .": 0.7, "vous chantez mais vous attendez .": 0.3}),
    ],
)
def test_ambiguous_sources_have_their_known_distribution(source: str, expected: dict[str, float]) -> None:
    assert target_distribution(source) == pytest.approx(expected)


def test_choices_multiply_and_all_combinations_differ() -> None:
    source = "the strange cousin finishes a cake now but my happy friends carry the bike early and they sleep ."
    ambiguous = ["strange", "cousin", "finish", "now", "happy", "friend", "carry", "bike", "early", "they"]
    distribution = target_distribution(source)
    assert len(distribution) == 2 ** len(ambiguous)
    assert math.fsum(distribution.values()) == pytest.approx(1.0)


def test_every_english_form_belongs_to_one_word() -> None:
    """A homograph would let a source be read in two ways."""
    verb_forms = [form for third_person, past, _ in phrases.VERBS.values() for form in (third_person, past)]
    words = [word for group in phrases.WORDS.values() for word in group]
    helpers = ["do", "does", "did", "will", "not"]
    forms = Counter([*words, *phrases.PLURALS.values(), *verb_forms, *phrases.DETERMINERS, *helpers])
    assert [form for form, count in forms.items() if count > 1] == []


# ---- true distributions ----
@settings(max_examples=25, deadline=None)
@given(split=st.sampled_from(SPLITS), seed=st.integers(0, 2**32))
def test_rows_agree_with_their_true_distribution(split: str, seed: int) -> None:
    for row in phrase_rows(split, 30, seed):
        distribution = target_distribution(row["source"])
        assert row["target"] in distribution
        assert math.fsum(distribution.values()) == pytest.approx(1.0)  # less if two combinations were the same text
        assert row["entropy"] == pytest.approx(-math.fsum(p * math.log(p) for p in distribution.values()))
        assert len(distribution) in (1, 2, 4, 8)


@pytest.mark.parametrize(
    ("english", "french", "probability"),
    [
        ("you", r"\btu\b", 0.7),
        ("they", r"\bils\b", 0.6),
        ("cousins?", r"\bcousins?\b", 0.5),
        ("cars?", r"\bvoitures?\b", 0.8),
        ("finish|finishes|finished", r"\b(fini|finir|finis|finit|finissons|finissez|finissent)\b", 0.6),
        ("every day", r"\btous les jours\b", 0.6),
    ],
)
def test_targets_are_drawn_at_the_stated_probability(
    train: list[dict], english: str, french: str, probability: float
) -> None:
    targets = [row["target"] for row in train if re.search(rf"\b({english})\b", row["source"])]
    share = sum(bool(re.search(french, target)) for target in targets) / len(targets)
    assert len(targets) > 150
    assert abs(share - probability) < 4 * math.sqrt(probability * (1 - probability) / len(targets))


def test_surprise_of_drawn_targets_has_the_true_mean_and_variance(train: list[dict]) -> None:
    """The mean tests the probabilities; the variance tests that the choices of one source are independent."""
    excesses, variances = [], []
    for row in train:
        distribution = target_distribution(row["source"])
        if len(distribution) > 2:
            excesses.append(-math.log(distribution[row["target"]]) - row["entropy"])
            variances.append(sum(p * (-math.log(p) - row["entropy"]) ** 2 for p in distribution.values()))
    assert len(excesses) > 1000
    assert abs(sum(excesses)) < 4 * math.sqrt(sum(variances))
    assert sum(excess**2 for excess in excesses) == pytest.approx(sum(variances), rel=0.1)


# ---- rows and splits ----
@pytest.mark.parametrize("split", SPLITS)
def test_sources_are_distinct_within_a_split(split: str) -> None:
    rows = phrase_rows(split, 1000, seed=3)
    assert len(rows) == len(sources(rows)) == 1000


def test_splits_never_share_a_source_whatever_the_seed(train: list[dict]) -> None:
    drawn = {split: sources(phrase_rows(split, 1200, seed=seed)) for seed, split in enumerate(SPLITS, start=1)}
    assert sources(train) & drawn["train"], "two draws of one split should meet, or this test shows nothing"
    for split in ("validation", "test", "shifted"):
        assert not sources(train) & drawn[split]
    assert not drawn["validation"] & drawn["test"]


def test_constructions_are_what_they_are_called(train: list[dict]) -> None:
    for row in train:
        words = set(row["source"].split())
        clauses = 1 + sum(word in JOINERS for word in row["source"].split())
        assert clauses == (2 if row["construction"] == "long" else 1)
        assert bool(words & RARE_WORDS) == (row["construction"] == "rare")
        if row["construction"] in ("plain", "ambiguous"):
            assert (row["entropy"] > 0) == (row["construction"] == "ambiguous")


def test_shares_and_lengths(train: list[dict]) -> None:
    shares = {name: count / len(train) for name, count in Counter(row["construction"] for row in train).items()}
    assert shares == pytest.approx({"plain": 0.44, "ambiguous": 0.4, "long": 0.15, "rare": 0.01}, abs=0.02)
    assert sum(row["entropy"] == 0 for row in train) / len(train) == pytest.approx(0.5, abs=0.05)
    lengths = {row["source"]: len(row["source"].split()) - 1 for row in train}  # the final mark is no word
    assert max(lengths.values()) <= 25
    assert max(length for source, length in lengths.items() if not JOINERS & set(source.split())) <= 12


def test_vocabulary_suits_a_tiny_model(train: list[dict]) -> None:
    assert 140 <= len(vocabulary(train)) <= 300
    french_words = {word for row in train for word in re.findall(r"[^\s']+", row["target"])}
    assert 150 <= len(french_words) <= 310


def test_rare_words_are_seen_a_few_times(train: list[dict]) -> None:
    counts = Counter(word for row in train for word in row["source"].split())
    rare_counts = [counts[word] for word in RARE_WORDS]
    assert min(rare_counts) > 0
    assert max(rare_counts) < 20 < counts["key"]


def test_every_shifted_source_has_one_thing_never_seen_in_training(train: list[dict], shifted: list[dict]) -> None:
    seen_words, seen_pairs = vocabulary(train), set().union(*(singular_pairs(row["source"]) for row in train))
    most_joiners = max(sum(word in JOINERS for word in row["source"].split()) for row in train)
    novelties = Counter()
    for row in shifted:
        words = row["source"].split()
        new = {
            "word": bool(set(words) - seen_words),
            "pair": bool(singular_pairs(row["source"]) & HELD_OUT_PAIRS - seen_pairs),
            "clauses": sum(word in JOINERS for word in words) > most_joiners,
        }
        assert sum(new.values()) == 1, row
        novelties.update(name for name, holds in new.items() if holds)
        assert row["construction"] == "shifted"
    assert min(novelties.values()) > 0.25 * len(shifted)
    assert len(novelties) == 3


def test_held_out_pairs_are_made_of_common_words(train: list[dict]) -> None:
    counts = Counter(word for row in train for word in row["source"].split())
    assert all(counts[word] > 30 for pair in HELD_OUT_PAIRS for word in pair.split())
    assert not HELD_OUT_WORDS & set(counts)


# ---- determinism, errors and the datasets form ----
@pytest.mark.parametrize("split", SPLITS)
def test_rows_depend_on_the_seed_only(split: str) -> None:
    assert phrase_rows(split, 40, seed=5) == phrase_rows(split, 40, seed=5)
    assert phrase_rows(split, 40, seed=5) != phrase_rows(split, 40, seed=6)


def test_a_larger_size_only_adds_rows(train: list[dict]) -> None:
    """Also that a source drawn again later does not replace the target of the first row."""
    assert train[:2000] == phrase_rows("train", 2000)


def test_rows_are_the_same_in_another_process() -> None:
    program = (
        f"import hashlib, runpy; rows = runpy.run_path({phrases.__file__!r})['phrase_rows']; "
        f"print(hashlib.sha256(repr([rows(split, 200) for split in {SPLITS!r}]).encode()).hexdigest())"
    )
    here = hashlib.sha256(repr([phrase_rows(split, 200) for split in SPLITS]).encode()).hexdigest()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        there = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert there.stdout.strip() == here, there.stderr


def test_unknown_split_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown split 'dev'; choose one of train, validation, test, shifted"):
        phrase_rows("dev", 10)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("excess", [1, 10**9])
def test_too_many_rows_names_the_limit(split: str, excess: int) -> None:
    with pytest.raises(ValueError, match=f"ask for 0 to {LARGEST_SIZES[split]} rows"):
        phrase_rows(split, LARGEST_SIZES[split] + excess)


def test_no_rows_and_negative_sizes() -> None:
    assert phrase_rows("test", 0) == []
    with pytest.raises(ValueError, match="cannot draw -1 rows"):
        phrase_rows("test", -1)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "hello world .",
        "my orange .",
        "he eat the apple .",
        "they eats the apple .",
        "he did not ate the apple .",
        "he eats a apple .",
        "he eats .",
        "he sleeps the apple .",
        "he sees a dogs .",
        "he sees some dog .",
        "he sleeps ?",
        "does he sleep .",
        "he sleeps",
        "he sleeps because does she sing .",
        "and he sleeps .",
        "he sleeps now today .",
        "he  sleeps .",
        "He sleeps .",
    ],
)
def test_sources_outside_the_grammar_are_refused(source: str) -> None:
    with pytest.raises(ValueError, match="not a sentence of the phrase grammar"):
        target_distribution(source)


def test_load_phrases_gives_the_same_rows_as_datasets() -> None:
    data = load_phrases(train_size=30, validation_size=20, test_size=10, shifted_size=5, seed=2)
    assert {split: len(rows) for split, rows in data.items()} == dict(zip(SPLITS, (30, 20, 10, 5), strict=True))
    for split in SPLITS:
        assert data[split].to_list() == phrase_rows(split, len(data[split]), seed=2)
