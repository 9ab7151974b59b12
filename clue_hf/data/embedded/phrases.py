"""Synthetic English to French phrases whose true target distribution is known.

The data is made by a small grammar, not collected from people.  Some English words have several French
translations at known probabilities ("you" is "tu" 0.7 or "vous" 0.3, and the verb agrees); every other word has one.
Within a sentence a word is always translated the same way, and different words are translated independently, so
the true distribution of a source is a product over its distinct words and its entropy is a sum of word entropies.

Splits.  "train", "validation" and "test" come from one distribution; a hash of the source decides which of the
three a sentence belongs to, so they are disjoint whatever the seeds.  "shifted" holds only sentences that the other
three never contain, in equal parts: a word of ``HELD_OUT_WORDS``, an adjective-noun pair of ``HELD_OUT_PAIRS``
(both words are common, only the pair is new), or three clauses (training sentences have one or two).

Constructions.  "plain": one clause, one target.  "ambiguous": one clause, 1 to 3 ambiguous words.  "long": two
clauses, 0 to 3 ambiguous words.  "rare": one clause with a word of ``RARE_WORDS``.  "shifted": the shifted split.
"""

import hashlib
import itertools
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datasets import DatasetDict

SPLITS = ("train", "validation", "test", "shifted")
# The grammar holds millions of sentences; under these ceilings repeated draws, which are thrown away, stay uncommon.
LARGEST_SIZES = {"train": 400_000, "validation": 40_000, "test": 40_000, "shifted": 40_000}
MOST_WORDS = 25

# ---- English words and their French: one translation, or several with their probabilities ----
# fmt: off
Translation = str | dict[str, float]
NOUNS: dict[str, dict[str, Translation]] = {
    "person": {"mother": "mère", "father": "père", "girl": "fille", "boy": "garçon", "child": "enfant",
               "cousin": {"cousin": 0.5, "cousine": 0.5}, "friend": {"ami": 0.6, "amie": 0.4},
               "neighbour": {"voisin": 0.7, "voisine": 0.3}, "doctor": {"médecin": 0.75, "docteur": 0.25},
               "nephew": "neveu", "uncle": "oncle", "aunt": "tante"},
    "animal": {"cat": "chat", "dog": "chien", "bird": "oiseau", "whale": "baleine", "squirrel": "écureuil",
               "goat": "chèvre"},
    "food": {"apple": "pomme", "orange": "orange", "cake": "gâteau", "pear": "poire", "lemon": "citron"},
    "thing": {"key": "clé", "hat": "chapeau", "table": "table", "car": {"voiture": 0.8, "auto": 0.2},
              "bike": {"vélo": 0.65, "bicyclette": 0.35}, "umbrella": "parapluie", "lamp": "lampe",
              "fork": "fourchette"},
    "text": {"book": "livre", "letter": "lettre", "poem": "poème", "novel": "roman"},
    "place": {"garden": "jardin", "school": "école", "market": "marché", "station": "gare", "house": "maison",
              "church": "église", "shop": {"magasin": 0.6, "boutique": 0.4}, "castle": "château",
              "hospital": "hôpital", "village": "village"},
}
ANY_ADJECTIVES: dict[str, Translation] = {"small": "petit", "big": "grand", "old": "vieux", "new": "nouveau",
                                          "pretty": "joli", "strange": {"étrange": 0.5, "bizarre": 0.5}}
LIVING_ADJECTIVES: dict[str, Translation] = {"young": "jeune", "tired": "fatigué", "brave": "courageux",
                                             "lazy": "paresseux", "happy": {"heureux": 0.6, "content": 0.4}}
THING_ADJECTIVES: dict[str, Translation] = {"red": "rouge", "green": "vert", "heavy": "lourd", "purple": "violet",
                                            "yellow": "jaune"}
PRONOUNS: dict[str, Translation] = {"i": "je", "he": "il", "she": "elle", "we": "nous",
                                    "you": {"tu": 0.7, "vous": 0.3}, "they": {"ils": 0.6, "elles": 0.4}}
LIVING, LIFELESS = ("person", "animal"), ("food", "thing", "text")


class Verb(NamedTuple):
    third_person: str
    past: str
    objects: tuple[str, ...]  # the kinds of noun it takes as its object; none for a verb without an object
    french: Translation


VERBS = {
    "eat": Verb("eats", "ate", ("food",), "manger"),
    "buy": Verb("buys", "bought", LIFELESS, "acheter"),
    "see": Verb("sees", "saw", LIVING + LIFELESS, "voir"),
    "find": Verb("finds", "found", LIVING + LIFELESS, "trouver"),
    "wash": Verb("washes", "washed", ("thing", "animal"), "laver"),
    "help": Verb("helps", "helped", LIVING, "aider"),
    "forget": Verb("forgets", "forgot", ("thing", "text"), "oublier"),
    "carry": Verb("carries", "carried", LIFELESS, {"porter": 0.7, "transporter": 0.3}),
    "finish": Verb("finishes", "finished", ("food", "text"), {"finir": 0.6, "terminer": 0.4}),
    "sleep": Verb("sleeps", "slept", (), "dormir"),
    "sing": Verb("sings", "sang", (), "chanter"),
    "wait": Verb("waits", "waited", (), "attendre"),
}
PREPOSITIONS: dict[str, Translation] = {"in": "dans", "at": "à", "near": "près de", "behind": "derrière"}
AROUND = ("place", "thing", *LIVING)
PREPOSITION_KINDS = {"in": ("place",), "at": ("place",), "near": AROUND, "behind": AROUND}
TIMES: dict[str, Translation] = {
    "today": "aujourd'hui", "yesterday": "hier", "last week": "la semaine dernière", "tomorrow": "demain",
    "soon": "bientôt", "next week": "la semaine prochaine", "now": {"maintenant": 0.75, "à présent": 0.25},
    "early": {"tôt": 0.65, "de bonne heure": 0.35}, "every day": {"tous les jours": 0.6, "chaque jour": 0.4},
}
TENSE_TIMES = {"present": ("today", "now", "early", "every day"), "past": ("today", "yesterday", "last week", "early"),
               "future": ("today", "tomorrow", "soon", "next week", "early")}
JOINERS: dict[str, Translation] = {"and": "et", "but": "mais", "because": "parce que"}

RARE_WORDS = frozenset("nephew uncle whale squirrel pear umbrella lamp poem castle hospital brave heavy purple".split())
HELD_OUT_WORDS = frozenset("aunt goat lemon fork novel village lazy yellow".split())
HELD_OUT_PAIRS = frozenset({
    ("red", "car"), ("green", "apple"), ("old", "friend"), ("tired", "mother"), ("small", "key"), ("new", "book"),
    ("pretty", "bird"), ("young", "dog"), ("strange", "hat"), ("happy", "boy")})

# ---- French grammar tables ----
FEMININE_NOUNS = frozenset(
    "mère fille cousine amie voisine baleine pomme orange poire clé table voiture auto bicyclette lampe lettre école "
    "gare maison église boutique tante chèvre fourchette".split())
IRREGULAR_FEMININES = {"vieux": "vieille", "nouveau": "nouvelle", "violet": "violette"}
ADJECTIVES_BEFORE_NOUN = frozenset({"petit", "grand", "vieux", "nouveau", "joli", "jeune"})
DETERMINERS = {  # masculine, feminine, plural
    "the": ("le", "la", "les"), "my": ("mon", "ma", "mes"), "a": ("un", "une", ""), "an": ("un", "une", ""),
    "this": ("ce", "cette", ""), "some": ("", "", "des"), "these": ("", "", "ces")}
PERSONS = {"je": 0, "tu": 1, "il": 2, "elle": 2, "nous": 3, "vous": 4, "ils": 5, "elles": 5}
AVOIR, ALLER = "ai as a avons avez ont".split(), "vais vas va allons allez vont".split()
IRREGULAR_VERBS = {  # the six persons of the present, then the past participle
    "manger": "mange manges mange mangeons mangez mangent mangé",
    "acheter": "achète achètes achète achetons achetez achètent acheté",
    "voir": "vois vois voit voyons voyez voient vu",
    "finir": "finis finis finit finissons finissez finissent fini",
    "dormir": "dors dors dort dormons dormez dorment dormi",
    "attendre": "attends attends attend attendons attendez attendent attendu",
}
VOWELS = frozenset("aeiouéèêàâîôûh")  # every h of this vocabulary is silent
ELIDED = frozenset({"je", "ne", "que", "le", "la", "de"})
BEFORE_VOWEL = {"ce": "cet", "ma": "mon"}
MASCULINE_BEFORE_VOWEL = {"vieux": "vieil", "nouveau": "nouvel"}  # in the singular only: le vieil ami, les vieux amis
CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux",
                ("de", "des"): "de", ("de", "de"): "de"}
# fmt: on

# ---- tables worked out from the ones above ----
KINDS = {noun: kind for kind, nouns in NOUNS.items() for noun in nouns}
ADJECTIVES = ANY_ADJECTIVES | LIVING_ADJECTIVES | THING_ADJECTIVES
OTHERS = ADJECTIVES | PRONOUNS | PREPOSITIONS | TIMES | JOINERS | {base: verb.french for base, verb in VERBS.items()}
TRANSLATIONS = {noun: french for nouns in NOUNS.values() for noun, french in nouns.items()} | OTHERS
DICTIONARY = {word: {french: 1.0} if isinstance(french, str) else french for word, french in TRANSLATIONS.items()}
ENTROPIES = {word: sum(-p * math.log(p) for p in french.values()) for word, french in DICTIONARY.items()}
AMBIGUOUS_WORDS = frozenset(word for word, french in DICTIONARY.items() if len(french) > 1)
# Places, rare and held-out nouns stay singular: it keeps the vocabulary small.
HAVE_PLURAL = [noun for noun, kind in KINDS.items() if kind != "place" and noun not in RARE_WORDS | HELD_OUT_WORDS]
PLURALS = {noun: "children" if noun == "child" else noun + "s" for noun in HAVE_PLURAL}
SINGULARS = {plural: noun for noun, plural in PLURALS.items()}
VERB_FORMS = {form: base for base, verb in VERBS.items() for form in (base, verb.third_person, verb.past)}


class Clause(NamedTuple):
    """One clause as English pieces; noun phrases are written out ("my old cousins") and the verb is in base form."""

    joiner: str  # empty in the first clause of a sentence
    subject: str
    verb: str
    tense: str  # present, past or future
    form: str  # statement, negation or question
    object: str
    preposition: str
    place: str
    time: str


Sentence = tuple[Clause, ...]


def _singular(noun: str) -> str:
    return SINGULARS.get(noun, noun)


def _is_plural(noun_phrase: str) -> bool:
    return noun_phrase.split()[-1] in SINGULARS


def _words(sentence: Sentence) -> list[str]:
    """The distinct dictionary words of a sentence, in a fixed order (a set would make draws differ between runs)."""
    words: list[str] = []
    for clause in sentence:
        phrases = f"{clause.subject} {clause.object} {clause.place}".split()
        words += [clause.joiner, clause.verb, clause.preposition, clause.time, *map(_singular, phrases)]
    return [word for word in dict.fromkeys(words) if word in DICTIONARY]


# ---- English ----
def _english_clause(clause: Clause) -> str:
    joiner, subject, base, tense, form, *rest = clause
    third = subject in ("he", "she") or not (subject in PRONOUNS or _is_plural(subject))
    helper = {"past": "did", "future": "will", "present": "does" if third else "do"}[tense]
    finite = {"past": VERBS[base].past, "future": f"will {base}", "present": VERBS[base].third_person if third else base}
    core = {
        "statement": f"{subject} {finite[tense]}",
        "negation": f"{subject} {helper} not {base}",
        "question": f"{helper} {subject} {base}",
    }
    return " ".join(filter(None, [joiner, core[form], *rest]))


def _english(sentence: Sentence) -> str:
    return " ".join(map(_english_clause, sentence)) + (" ?" if sentence[0].form == "question" else " .")


def _one_of(name: str, words: Iterable[str]) -> str:
    return f"(?P<{name}>{'|'.join(words)})"


def _clause_pattern() -> re.Pattern[str]:
    adjective, helper = f"(?:(?:{'|'.join(ADJECTIVES)}) )?", ("do", "does", "did", "will")
    one = f"(?:the|my|this|a(?! [aeiou])|an(?= [aeiou])) {adjective}(?:{'|'.join(KINDS)})"
    many = f"(?:the|my|some|these) {adjective}(?:{'|'.join(SINGULARS)})"
    return re.compile(
        f"(?:{_one_of('joiner', JOINERS)} )?(?:{_one_of('asks', helper)} )?{_one_of('subject', [*PRONOUNS, one, many])}"
        f"(?: {_one_of('helper', helper)})?(?P<negated> not)? {_one_of('verb', VERB_FORMS)}"
        f"(?: {_one_of('object', [one, many])})?(?: {_one_of('preposition', PREPOSITIONS)} "
        f"{_one_of('place', [one, many])})?(?: {_one_of('time', TIMES)})?"
    )


CLAUSE_PATTERN = _clause_pattern()


def _read_clause(text: str) -> Clause | None:
    match = CLAUSE_PATTERN.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict("")
    base = VERB_FORMS[part["verb"]]
    unhelped = "past" if part["verb"] == VERBS[base].past else "present"
    tense = {"did": "past", "will": "future", "": unhelped}.get(part["asks"] or part["helper"], "present")
    form = "question" if part["asks"] else "negation" if part["negated"] else "statement"
    rest = (part[name] for name in ("object", "preposition", "place", "time"))
    return Clause(part["joiner"], part["subject"], base, tense, form, *rest)


def _noun_fits(noun_phrase: str, kinds: tuple[str, ...]) -> bool:
    return KINDS[_singular(noun_phrase.split()[-1])] in kinds if noun_phrase else not kinds


def _is_grammatical(sentence: Sentence) -> bool:
    one_question_at_most = len(sentence) == 1 or all(clause.form != "question" for clause in sentence)
    nouns_fit = all(
        _noun_fits(clause.object, VERBS[clause.verb].objects)
        and _noun_fits(clause.place, PREPOSITION_KINDS.get(clause.preposition, ()))
        for clause in sentence
    )
    return one_question_at_most and nouns_fit and not sentence[0].joiner


def _read(source: str) -> Sentence:
    read = [_read_clause(text) for text in re.split(r" (?=(?:and|but|because) )", source[:-2])]
    sentence = tuple(clause for clause in read if clause)
    # Writing the sentence again catches what the pattern lets through, such as "he eat" or "she did not slept".
    if len(sentence) < len(read) or not _is_grammatical(sentence) or _english(sentence) != source:
        raise ValueError(f"not a sentence of the phrase grammar: {source!r}; use sources given by phrase_rows")
    return sentence


# ---- French ----
def _plural(word: str) -> str:
    return word if word[-1] in "sx" else word + ("x" if word.endswith("eau") else "s")


def _feminine(adjective: str) -> str:
    regular = adjective if adjective.endswith("e") else re.sub("eux$", "eus", adjective) + "e"
    return IRREGULAR_FEMININES.get(adjective, regular)


def _conjugation(infinitive: str) -> list[str]:
    regular = " ".join(infinitive[:-2] + ending for ending in ("e", "es", "e", "ons", "ez", "ent", "é"))
    return IRREGULAR_VERBS.get(infinitive, regular).split()


def _french_noun_phrase(noun_phrase: str, choice: dict[str, str], denied: bool = False) -> str:
    """Translate with agreement; ``denied`` marks the object of a negated verb (il ne voit pas DE voiture)."""
    determiner, *adjectives, noun = noun_phrase.split()
    plural, noun = noun in SINGULARS, choice[_singular(noun)]
    feminine = noun in FEMININE_NOUNS
    before, after = [], []
    for adjective in (choice[word] for word in adjectives):
        side = before if adjective in ADJECTIVES_BEFORE_NOUN else after
        if feminine:
            adjective = _feminine(adjective)
        elif not plural and noun[0] in VOWELS:
            adjective = MASCULINE_BEFORE_VOWEL.get(adjective, adjective)
        side.append(_plural(adjective) if plural else adjective)
    article = DETERMINERS[determiner][2 if plural else int(feminine)]
    if (denied and determiner in ("a", "an", "some")) or (before and determiner == "some"):
        article = "de"
    return " ".join([article, *before, _plural(noun) if plural else noun, *after])


def _french_clause(clause: Clause, choice: dict[str, str]) -> str:
    pronoun, denied = choice.get(clause.subject), clause.form == "negation"
    subject = pronoun or _french_noun_phrase(clause.subject, choice)
    person = PERSONS[pronoun] if pronoun else 5 if _is_plural(clause.subject) else 2
    infinitive = choice[clause.verb]
    *present, participle = _conjugation(infinitive)
    finite, rest = {
        "present": (present[person], ""), "past": (AVOIR[person], participle), "future": (ALLER[person], infinitive)
    }[clause.tense]  # fmt: skip
    return " ".join([
        choice.get(clause.joiner, ""), "est-ce que" if clause.form == "question" else "", subject,
        f"ne {finite} pas" if denied else finite, rest,
        _french_noun_phrase(clause.object, choice, denied) if clause.object else "",
        choice.get(clause.preposition, ""), _french_noun_phrase(clause.place, choice) if clause.place else "",
        choice.get(clause.time, ""),
    ])  # fmt: skip


def _join_french(words: list[str]) -> str:
    """Elide and contract from right to left, so that "de le école" is "de l'école" before "de le" could be "du"."""
    joined: list[str] = []  # the words after the present one, the nearest last
    for word in reversed(words):
        while joined and (word, joined[-1]) in CONTRACTIONS:
            word = CONTRACTIONS[word, joined.pop()]
        if joined and joined[-1][0] in VOWELS:
            word = f"{word[:-1]}'{joined.pop()}" if word in ELIDED else BEFORE_VOWEL.get(word, word)
        joined.append(word)
    return " ".join(reversed(joined))


def _french(sentence: Sentence, choice: dict[str, str]) -> str:
    words = " ".join(_french_clause(clause, choice) for clause in sentence).split()
    return _join_french([*words, "?" if sentence[0].form == "question" else "."])
