"""Reports of made-up examples for the tests of their page."""

import numpy as np

from clue_hf import EvaluationReport
from clue_hf.metrics import rejection_reports


HOSTILE = {
    "image": "<img src=x onerror=\"window.hacked='image'\">",
    "script": "</script><script>window.hacked='script'</script>",
    "comment": "<!--<script>--> ]]> &lt;b&gt; <b>bold</b>",
    "placeholder": "{{data}} {{title}} {{x}} ${1+1} \\1 %s",
    "separators": "line\u2028and\u2029paragraph\x00\x07\ttab\nnewline",
    "direction": "שלום עולם \u202e right to left",
    "word": "w" * 3000,
    "long": "many words " * 1000,
    "quotes": "\"double\" 'single' `back` \\slash",
    "unpaired": "half \ud83d a pair",
    "empty": "",
}
HOSTILE_NAME = "<img/src=x/onerror=window.hacked=1>"


def make_example(row, quality, scores, output="", source="a source", reference="a reference"):
    """An example whose tokens are its words; later words are less certain."""
    tokens = [*(f"▁{word}" for word in output.split(" ") if word), "</s>"]
    entropies = np.linspace(0, 2, len(tokens)).tolist()
    return {
        "row": row, "source": source, "reference": reference, "output": output, "quality": quality,
        "qualities": {"bleu": quality, "chrf": quality / 2}, "scores": scores, "tokens": tokens,
        "token_log_probabilities": [-entropy / 2 for entropy in entropies], "token_entropies": entropies,
    }  # fmt: skip


def make_report(examples, **description):
    scores = {name: [example["scores"][name] for example in examples] for name in examples[0]["scores"]}
    quality = [example["quality"] for example in examples]
    metrics = {
        "n": len(examples),
        "empty_outputs": sum(not example["output"] for example in examples),
        "quality": {"bleu": {"mean": {"value": 0.5}, "corpus": {"value": 51.25, "low": 48.5, "high": 54.75}}},
        "references": {"tokens": 12345, "error": {"value": 0.5}, "uncertainty": {"value": 0.375}},
        "scorers": rejection_reports(scores, quality, resamples=20),
    }
    return EvaluationReport(examples, metrics, {"model": "a model", "data": "some data", **description})


def usual_report(n=120, seed=0, noises=(("msp", 0.2), ("pmi", 0.8), ("own", 3.0))):
    rng = np.random.default_rng(seed)
    quality = rng.beta(2, 1, n).round(6)
    scores = {name: noise * rng.normal(size=n) - quality for name, noise in noises}
    words = ["red", "green", "blue", "old", "new", "house", "garden", "river", "walks", "sleeps"]
    texts = [[" ".join(rng.choice(words, 6)) for _ in range(3)] for _ in range(n)]
    return make_report(
        [
            make_example(row, float(quality[row]), {name: float(scores[name][row]) for name in scores}, *texts[row])
            for row in range(n)
        ]
    )


REPORT = usual_report()


def hostile_report():
    texts = list(HOSTILE.values())
    examples = [
        make_example(row, row / 20, {"msp": float(-row), HOSTILE_NAME: float(row)}, text, text, text)
        for row, text in enumerate(texts)
    ]
    for example in examples:
        example["tokens"] = [HOSTILE["image"], HOSTILE["script"], "\u2028", "\n", ""]
        for name in ("token_log_probabilities", "token_entropies"):
            example[name] = [0.0, -0.5, float("nan"), float("-inf"), 1e300]
    return make_report(
        examples, model=HOSTILE["image"], data=HOSTILE["script"], odd={HOSTILE["image"]: HOSTILE["script"]}
    )


# ---- what a page shows ----


def column(page, name):
    """The texts of a column of the table of examples, without the unknown ones."""
    place = page.locator("#table thead th").evaluate_all("cells => cells.map(cell => cell.dataset.key)").index(name)
    return page.locator(f"#table tr.row > td:nth-child({place + 2})").all_inner_texts()


def numbers(texts):
    return [float(text.replace("−", "-")) for text in texts]


def every_page(page, name):
    """A column of all pages. A script presses their button: with a mouse every page takes a tenth of a second."""
    found, following = column(page, name), page.locator("#next")
    while following.is_enabled():
        following.evaluate("button => button.click()")
        found += column(page, name)
    return found


def status(page):
    return page.inner_text("#status")
