"""Synthetic English to French phrases whose true target distribution is known.

The data is made by a small grammar, not collected from people.  Some English words have several French
translations at known probabilities ("you" is "tu" 0.7 or "vous" 0.3, and the verb agrees); every other word has one.
Within a sentence a word is always translated the same way, and different words are translated independently, so
the true distribution of a source is a product over its distinct words and its entropy is a sum of word entropies.

"train", "validation" and "test" come from one distribution; a hash of the source decides which of the three a
sentence belongs to, so they are disjoint whatever the seeds.  "shifted" holds only sentences that the other three
never contain, in equal parts: a word of ``HELD_OUT_WORDS``, an adjective-noun pair of ``HELD_OUT_PAIRS`` (both words
are common, only the pair is new), or three clauses.  Constructions of the other three: "plain", one clause and one
target; "ambiguous", one clause with 1 to 3 ambiguous words; "long", two clauses with 0 to 3 ambiguous words; "rare",
one clause with a word of ``RARE_WORDS`` (1 row in 100, so that each such word is seen only a few times).
"""

import functools
import hashlib
import itertools
import math
import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from datasets import DatasetDict

SPLITS = ("train", "validation", "test", "shifted")
# The grammar holds millions of sentences; under these ceilings repeated draws, which are thrown away, stay uncommon.
LARGEST_SIZES = {"train": 400_000, "validation": 40_000, "test": 40_000, "shifted": 40_000}
MOST_WORDS, MOST_AMBIGUOUS = 25, 3

# fmt: off
# ---- English words and their French: one translation, or several with their probabilities ----
WORDS: dict[str, dict[str, str | dict[str, float]]] = {
    "person": {"mother": "mère", "father": "père", "girl": "fille", "boy": "garçon", "kid": "enfant",
               "nephew": "neveu", "uncle": "oncle", "knight": "chevalier", "aunt": "tante",
               "cousin": {"cousin": 0.5, "cousine": 0.5}, "friend": {"ami": 0.6, "amie": 0.4},
               "neighbour": {"voisin": 0.7, "voisine": 0.3}, "doctor": {"médecin": 0.75, "docteur": 0.25}},
    "animal": {"cat": "chat", "dog": "chien", "bird": "oiseau", "goat": "chèvre"},
    "food": {"apple": "pomme", "orange": "orange", "cake": "gâteau", "pear": "poire", "lemon": "citron"},
    "thing": {"key": "clé", "hat": "chapeau", "table": "table", "umbrella": "parapluie", "lamp": "lampe",
              "clock": "horloge", "fork": "fourchette", "car": {"voiture": 0.8, "auto": 0.2},
              "bike": {"vélo": 0.65, "bicyclette": 0.35}},
    "text": {"book": "livre", "letter": "lettre", "novel": "roman"},
    "place": {"garden": "jardin", "school": "école", "market": "marché", "station": "gare", "house": "maison",
              "office": "bureau", "castle": "château", "hospital": "hôpital", "island": "île", "village": "village",
              "shop": {"magasin": 0.6, "boutique": 0.4}},
    "adjective": {"small": "petit", "big": "grand", "old": "vieux", "new": "nouveau",
                  "strange": {"étrange": 0.5, "bizarre": 0.5}},
    "living adjective": {"tired": "fatigué", "brave": "courageux", "lazy": "paresseux",
                         "happy": {"heureux": 0.6, "content": 0.4}},
    "lifeless adjective": {"red": "rouge", "green": "vert", "heavy": "lourd", "purple": "violet", "yellow": "jaune"},
    "pronoun": {"i": "je", "he": "il", "she": "elle", "we": "nous", "you": {"tu": 0.7, "vous": 0.3},
                "they": {"ils": 0.6, "elles": 0.4}},
    "verb": {"eat": "manger", "buy": "acheter", "see": "voir", "find": "trouver", "wash": "laver", "help": "aider",
             "forget": "oublier", "sleep": "dormir", "sing": "chanter", "wait": "attendre",
             "carry": {"porter": 0.7, "transporter": 0.3}, "finish": {"finir": 0.6, "terminer": 0.4}},
    "preposition": {"in": "dans", "at": "à", "near": "près de", "behind": "derrière"},
    "time": {"today": "aujourd'hui", "yesterday": "hier", "last week": "la semaine dernière", "tomorrow": "demain",
             "soon": "bientôt", "next week": "la semaine prochaine", "now": {"maintenant": 0.75, "à présent": 0.25},
             "early": {"tôt": 0.65, "de bonne heure": 0.35}, "every day": {"tous les jours": 0.6, "chaque jour": 0.4}},
    "joiner": {"and": "et", "but": "mais", "because": "parce que"},
}
RARE_WORDS = frozenset({"nephew", "uncle", "knight", "pear", "umbrella", "lamp", "clock", "castle", "hospital",
                        "island", "brave", "heavy", "purple"})
HELD_OUT_WORDS = frozenset({"aunt", "goat", "lemon", "fork", "novel", "village", "lazy", "yellow"})
HELD_OUT_PAIRS = frozenset({"red car", "green apple", "small key", "new book", "strange hat", "big bird", "old dog",
                            "old friend", "tired mother", "happy boy"})

# ---- English grammar: verb forms, and which words go together ----
LIVING, LIFELESS = ("person", "animal"), ("food", "thing", "text")
NOT_PERSON = ("animal", *LIFELESS)  # people are drawn as subjects only: easier to learn than nouns in any place
VERBS: dict[str, tuple[str, str, tuple[str, ...]]] = {  # third person, past, kinds of noun taken as the object
    "eat": ("eats", "ate", ("food",)), "buy": ("buys", "bought", LIFELESS), "see": ("sees", "saw", NOT_PERSON),
    "find": ("finds", "found", NOT_PERSON), "wash": ("washes", "washed", ("thing", "animal")),
    "help": ("helps", "helped", ("animal",)), "forget": ("forgets", "forgot", ("thing", "text")),
    "sleep": ("sleeps", "slept", ()), "sing": ("sings", "sang", ()), "wait": ("waits", "waited", ()),
    "carry": ("carries", "carried", LIFELESS), "finish": ("finishes", "finished", ("food", "text"))}
SINGULAR_DETERMINERS, PLURAL_DETERMINERS = ("the", "the", "my", "a"), ("the", "the", "my", "some")  # drawn evenly
TENSES = ("present", "present", "past", "future")  # drawn evenly: the present has the most forms to learn
TENSE_TIMES = {"present": ("today", "now", "early", "every day"), "past": ("today", "yesterday", "last week", "early"),
               "future": ("today", "tomorrow", "soon", "next week", "early")}

# ---- French grammar ----
FEMININE_NOUNS = frozenset({
    "mère", "fille", "cousine", "amie", "voisine", "pomme", "orange", "poire", "clé", "table", "voiture", "auto",
    "bicyclette", "lampe", "horloge", "lettre", "école", "gare", "maison", "île", "boutique", "tante",
    "chèvre", "fourchette"})
FEMININE_ADJECTIVES = {  # the others end in -e for both genders
    "petit": "petite", "grand": "grande", "vieux": "vieille", "nouveau": "nouvelle", "vert": "verte",
    "fatigué": "fatiguée", "heureux": "heureuse", "content": "contente", "courageux": "courageuse",
    "lourd": "lourde", "violet": "violette", "paresseux": "paresseuse"}
ADJECTIVES_BEFORE_NOUN = frozenset({"petit", "grand", "vieux", "nouveau"})
DETERMINERS = {"the": ("le", "la", "les"), "my": ("mon", "ma", "mes"), "some": ("", "", "des"),
               "a": ("un", "une", ""), "an": ("un", "une", "")}  # masculine, feminine, plural
PERSONS = {"je": 0, "tu": 1, "il": 2, "elle": 2, "nous": 3, "vous": 4, "ils": 5, "elles": 5}
AVOIR, ALLER = ("ai", "as", "a", "avons", "avez", "ont"), ("vais", "vas", "va", "allons", "allez", "vont")
REGULAR_VERB = "{0}e {0}es {0}e {0}ons {0}ez {0}ent {0}é"  # the six persons of the present, then the past participle
IRREGULAR_VERBS = {
    "manger": "mange manges mange mangeons mangez mangent mangé",
    "acheter": "achète achètes achète achetons achetez achètent acheté",
    "voir": "vois vois voit voyons voyez voient vu", "finir": "finis finis finit finissons finissez finissent fini",
    "dormir": "dors dors dort dormons dormez dorment dormi",
    "attendre": "attends attends attend attendons attendez attendent attendu"}
VOWELS = frozenset("aeiouéèêàâîôûh")  # every h of this vocabulary is silent
ELIDED = frozenset({"je", "ne", "que", "le", "la", "de"})
MASCULINE_BEFORE_VOWEL = {"vieux": "vieil", "nouveau": "nouvel"}  # in the singular: le vieil ami, les vieux amis
CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux",
                ("de", "des"): "de", ("de", "de"): "de"}
# fmt: on

# ---- tables worked out from the ones above ----
TRANSLATIONS = {word: french for group in WORDS.values() for word, french in group.items()}
DICTIONARY = {word: {french: 1.0} if isinstance(french, str) else french for word, french in TRANSLATIONS.items()}
FIRST_CHOICE = {word: next(iter(french)) for word, french in DICTIONARY.items()}
OPTIONS = {word: (list(french), list(french.values())) for word, french in DICTIONARY.items()}
ENTROPIES = {word: sum(-p * math.log(p) for p in french.values()) for word, french in DICTIONARY.items()}
AMBIGUOUS_WORDS = frozenset(word for word, french in DICTIONARY.items() if len(french) > 1)
EVERYDAY_WORDS = frozenset(DICTIONARY) - RARE_WORDS - HELD_OUT_WORDS
NOUNS = [noun for kind in (*LIVING, *LIFELESS, "place") for noun in WORDS[kind]]
PLURALS = {noun: f"{noun}s" for noun in NOUNS if noun in EVERYDAY_WORDS}  # the others would add many forms
SINGULARS = {plural: noun for noun, plural in PLURALS.items()}
NOT_THIRD_PERSON = frozenset({"i", "you", "we", "they", *SINGULARS})
VERB_FORMS = {form: base for base, (third_person, past, _) in VERBS.items() for form in (base, third_person, past)}
LEMMAS = {word: word for word in DICTIONARY} | SINGULARS | VERB_FORMS
REGULAR_VERBS = {verb: REGULAR_VERB.format(verb[:-2]) for base in VERBS for verb in DICTIONARY[base]}
CONJUGATIONS = {verb: forms.split() for verb, forms in (REGULAR_VERBS | IRREGULAR_VERBS).items()}


# ---- reading English ----
def _words(source: str) -> list[str]:
    """The distinct dictionary words of a source, in a fixed order (a set would make draws differ between runs)."""
    found = re.findall(r"every day|last week|next week|\w+", source)
    return list(dict.fromkeys(LEMMAS[word] for word in found if word in LEMMAS))


def _subject_and_verb(subject: str, base: str, tense: str, form: str) -> str:
    third_person, past, _ = VERBS[base]
    third = subject.split()[-1] not in NOT_THIRD_PERSON
    if form == "statement":
        finite = {"present": third_person if third else base, "past": past, "future": f"will {base}"}[tense]
        return f"{subject} {finite}"
    helper = {"present": "does" if third else "do", "past": "did", "future": "will"}[tense]
    return f"{subject} {helper} not {base}" if form == "negation" else f"{helper} {subject} {base}"


ADJECTIVE = "|".join(WORDS["adjective"] | WORDS["living adjective"] | WORDS["lifeless adjective"])
SINGULAR_PHRASE = f"(?:the|my|a(?! [aeiou])|an(?= [aeiou])) (?:(?:{ADJECTIVE}) )?(?:{'|'.join(NOUNS)})"
NOUN_PHRASE = f"(?:{SINGULAR_PHRASE}|(?:the|my|some) (?:(?:{ADJECTIVE}) )?(?:{'|'.join(SINGULARS)}))"
CLAUSE_PATTERN = re.compile(
    f"(?:(?P<joiner>{'|'.join(WORDS['joiner'])}) )?(?P<core>(?(joiner)|(?:(?P<asks>do|does|did|will) )?)"
    f"(?P<subject>{'|'.join(WORDS['pronoun'])}|{NOUN_PHRASE})(?: (?P<helper>do|does|did|will))?(?P<negated> not)? "
    f"(?P<verb>{'|'.join(VERB_FORMS)}))(?: (?P<object>{NOUN_PHRASE}))?(?: (?P<preposition>"
    f"{'|'.join(WORDS['preposition'])}) (?P<place>{NOUN_PHRASE}))?(?: (?P<time>{'|'.join(WORDS['time'])}))?"
)
Clause = dict[str, str]  # the named parts of the pattern, with the verb's base, tense and form


def _read(source: str) -> list[Clause]:
    """Read any well-formed sentence, also one that makes little sense and that phrase_rows would not draw."""
    problem = ValueError(f"not a sentence of the phrase grammar: {source!r}; phrase_rows gives sources that are")
    clauses: list[Clause] = []
    for text in re.split(r" (?=(?:and|but|because) )", source[:-2]):
        match = CLAUSE_PATTERN.fullmatch(text)
        if match is None:
            raise problem
        clause = match.groupdict("")
        base = VERB_FORMS[clause["verb"]]
        unhelped = "past" if clause["verb"] == VERBS[base][1] else "present"
        tense = {"did": "past", "will": "future"}.get(clause["asks"] or clause["helper"], unhelped)
        form = "question" if clause["asks"] else "negation" if clause["negated"] else "statement"
        # Writing the verb again catches what the pattern lets through, such as "he eat" or "she did not slept".
        agrees = clause["core"] == _subject_and_verb(clause["subject"], base, tense, form)
        if not agrees or bool(clause["object"]) != bool(VERBS[base][2]):
            raise problem
        clauses.append(clause | {"verb": base, "tense": tense, "form": form})
    if clauses[0]["joiner"] or source[-2:] != (" ?" if clauses[0]["form"] == "question" else " ."):
        raise problem
    return clauses


# ---- writing French ----
def _plural(word: str) -> str:
    return word if word[-1] in "sx" else word + ("x" if word.endswith("eau") else "s")


def _noun_phrase(phrase: str, choice: dict[str, str], denied: bool = False) -> str:
    """Translate with agreement; ``denied`` marks the object of a negated verb (il ne voit pas DE voiture)."""
    determiner, *adjectives, noun = phrase.split()
    plural, noun = noun in SINGULARS, choice[LEMMAS[noun]]
    feminine, adjective_first = noun in FEMININE_NOUNS, False
    words = [_plural(noun) if plural else noun]
    for adjective in (choice[word] for word in adjectives):
        adjective_first = adjective in ADJECTIVES_BEFORE_NOUN
        if feminine:
            adjective = FEMININE_ADJECTIVES.get(adjective, adjective)
        elif not plural and noun[0] in VOWELS:
            adjective = MASCULINE_BEFORE_VOWEL.get(adjective, adjective)
        words.insert(0 if adjective_first else 1, _plural(adjective) if plural else adjective)
    article = DETERMINERS[determiner][2 if plural else int(feminine)]
    if (denied and determiner in ("a", "an", "some")) or (adjective_first and determiner == "some"):
        article = "de"
    return " ".join([article, *words])


def _verb(infinitive: str, person: int, tense: str, negated: bool) -> str:
    *present, participle = CONJUGATIONS[infinitive]
    finite = {"present": present, "past": AVOIR, "future": ALLER}[tense][person]
    rest = {"present": "", "past": participle, "future": infinitive}[tense]
    return f"ne {finite} pas {rest}" if negated else f"{finite} {rest}"


def _clause(clause: Clause, choice: dict[str, str]) -> str:
    pronoun, negated = choice.get(clause["subject"]), clause["form"] == "negation"
    person = PERSONS[pronoun or ("ils" if clause["subject"].split()[-1] in SINGULARS else "il")]
    pieces = [choice.get(clause["joiner"], ""), "est-ce que" if clause["form"] == "question" else ""]
    subject = pronoun or _noun_phrase(clause["subject"], choice)
    pieces += [subject, _verb(choice[clause["verb"]], person, clause["tense"], negated)]
    if clause["object"]:
        pieces.append(_noun_phrase(clause["object"], choice, denied=negated))
    if clause["place"]:
        pieces += [choice[clause["preposition"]], _noun_phrase(clause["place"], choice)]
    return " ".join([*pieces, choice.get(clause["time"], "")])


def _french(clauses: list[Clause], choice: dict[str, str]) -> str:
    """Join the clauses, eliding from right to left: "de le école" is "de l'école" before "de le" could be "du"."""
    words = " ".join(_clause(clause, choice) for clause in clauses).split()
    joined = ["?" if clauses[0]["form"] == "question" else "."]  # the words after the present one, the nearest last
    for word in reversed(words):
        while (word, joined[-1]) in CONTRACTIONS:
            word = CONTRACTIONS[word, joined.pop()]
        if joined[-1][0] in VOWELS:
            word = f"{word[:-1]}'{joined.pop()}" if word in ELIDED else "mon" if word == "ma" else word
        joined.append(word)
    return " ".join(reversed(joined))


# ---- drawing sentences ----
Vocabulary = dict[str, list[str]]


def _vocabulary(allowed: frozenset[str]) -> Vocabulary:
    return {group: [word for word in words if word in allowed] for group, words in WORDS.items()}


PLAIN, MIXED = _vocabulary(EVERYDAY_WORDS - AMBIGUOUS_WORDS), _vocabulary(EVERYDAY_WORDS)
WITH_RARE, WITH_HELD_OUT = _vocabulary(EVERYDAY_WORDS | RARE_WORDS), _vocabulary(EVERYDAY_WORDS | HELD_OUT_WORDS)
# A recipe: kind of sentence, share of the rows, vocabulary, number of clauses.
ORDINARY = [("plain", 0.44, PLAIN, 1), ("ambiguous", 0.4, MIXED, 1), ("rare", 0.01, WITH_RARE, 1)]
ORDINARY += [("long", 0.06, PLAIN, 2), ("long", 0.09, MIXED, 2)]
SHIFTED = [("held-out word", 1, WITH_HELD_OUT, 1), ("held-out pair", 1, MIXED, 1), ("three clauses", 1, MIXED, 3)]
NEEDED = {"ambiguous": AMBIGUOUS_WORDS, "rare": RARE_WORDS, "held-out word": HELD_OUT_WORDS}  # one of these words


def _pick(rng: random.Random, options: Sequence[str]) -> str:
    return options[int(rng.random() * len(options))]  # rng.choice takes three times as long


def _draw_noun_phrase(rng: random.Random, words: Vocabulary, kinds: tuple[str, ...], adjective_share: float) -> str:
    kind = _pick(rng, kinds)
    noun = _pick(rng, words[kind])
    plural = noun in PLURALS and rng.random() < 0.25
    phrase = [PLURALS[noun] if plural else noun]
    if rng.random() < adjective_share:
        fitting = words["living adjective"] if kind in LIVING else words["lifeless adjective"]
        phrase.insert(0, _pick(rng, words["adjective"] + fitting))
    determiner = _pick(rng, PLURAL_DETERMINERS if plural else SINGULAR_DETERMINERS)
    return " ".join(["an" if determiner == "a" and phrase[0][0] in "aeiou" else determiner, *phrase])


def _draw_clause(rng: random.Random, words: Vocabulary, alone: bool) -> str:
    """Draw a clause and its final mark; one that is not alone in its sentence is simpler and asks nothing."""
    adjectives, endings = (0.3, 0.35) if alone else (0.1, 0.2)
    has_noun, ending, chance = rng.random() < 0.5, rng.random(), rng.random()
    subject = _draw_noun_phrase(rng, words, ("person",), adjectives) if has_noun else _pick(rng, words["pronoun"])
    verb, tense = _pick(rng, words["verb"]), _pick(rng, TENSES)
    form = "negation" if chance < 0.2 else "question" if chance < 0.32 and alone else "statement"
    pieces = [_subject_and_verb(subject, verb, tense, form)]
    if VERBS[verb][2]:
        pieces.append(_draw_noun_phrase(rng, words, VERBS[verb][2], adjectives))
    if ending < endings:
        pieces.append(_pick(rng, [time for time in TENSE_TIMES[tense] if time in words["time"]]))
    elif ending < 2 * endings:
        pieces += [_pick(rng, words["preposition"]), _draw_noun_phrase(rng, words, ("place",), adjective_share=0)]
    return " ".join([*pieces, "?" if form == "question" else "."])


def _draw_source(rng: random.Random, words: Vocabulary, clauses: int) -> str:
    source = _draw_clause(rng, words, alone=clauses == 1)
    for _ in range(clauses - 1):
        source = f"{source[:-2]} {_pick(rng, words['joiner'])} {_draw_clause(rng, words, alone=False)}"
    return source


def _belongs(source: str, split: str, kind: str) -> bool:
    """Whether a source drawn for a kind has what makes this kind, nothing held out besides, and is in the split."""
    if split != "shifted":
        byte = hashlib.blake2b(source.encode(), digest_size=1).digest()[0]  # built-in hash() differs between processes
        if split != ("validation" if byte < 26 else "test" if byte < 52 else "train"):
            return False
    words = _words(source)
    small = source.count(" ") <= MOST_WORDS and len(AMBIGUOUS_WORDS.intersection(words)) <= MOST_AMBIGUOUS
    has_pair = any(pair in source for pair in HELD_OUT_PAIRS)  # finds the plural too, "red cars"
    return small and has_pair == (kind == "held-out pair") and not NEEDED.get(kind, EVERYDAY_WORDS).isdisjoint(words)


def phrase_rows(split: str, size: int, seed: int = 0) -> list[dict[str, str | float]]:
    """Draw distinct sources, each with a target, its true entropy (nats) and construction; a larger size adds rows."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; choose one of {', '.join(SPLITS)}")
    if not 0 <= size <= LARGEST_SIZES[split]:
        raise ValueError(f"cannot draw {size} rows of {split!r}: ask for 0 to {LARGEST_SIZES[split]} rows")
    rng = random.Random(f"{split} {seed}")
    rows: dict[str, dict[str, str | float]] = {}
    recipes = SHIFTED if split == "shifted" else ORDINARY
    while len(rows) < size:
        [(kind, _, vocabulary, clauses)] = rng.choices(recipes, [share for _, share, _, _ in recipes])
        draws = (_draw_source(rng, vocabulary, clauses) for _ in itertools.count())
        source = next(text for text in draws if text not in rows and _belongs(text, split, kind))
        words = _words(source)
        choice = FIRST_CHOICE | {word: rng.choices(*OPTIONS[word])[0] for word in words if word in AMBIGUOUS_WORDS}
        target, entropy = _french(_read(source), choice), sum(ENTROPIES[word] for word in words)
        construction = "shifted" if split == "shifted" else kind
        rows[source] = {"source": source, "target": target, "entropy": entropy, "construction": construction}
    return list(rows.values())


#: Drawing all of them takes seconds: a process that loads them again gets the same rows.
_drawn_rows = functools.cache(phrase_rows)


def load_phrases(
    train_size: int = 20000, validation_size: int = 1000, test_size: int = 1000, shifted_size: int = 500, seed: int = 0
) -> "DatasetDict":
    """Draw the four splits of synthetic phrases; nothing is downloaded."""
    from datasets import Dataset, DatasetDict  # here because it is slow to import

    sizes = zip(SPLITS, (train_size, validation_size, test_size, shifted_size), strict=True)
    return DatasetDict({split: Dataset.from_list(_drawn_rows(split, size, seed)) for split, size in sizes})
