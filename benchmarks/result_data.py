"""
The data of the results with pretrained models: one file of pairs for each comparison, with a column `split`.

    python benchmarks/result_data.py --tatoeba tatoeba_en_fr.jsonl.gz --multi30k multi30k_en_fr.jsonl.gz \
        --news news_en_fr.jsonl.gz --output out/data

Rows are `en`, `fr` (the first French sentence of an English one) and `references` (all of them). No English sentence
is in two splits. `tatoeba.jsonl` has the splits train, validation, held_out, test, and the shifted news and multi30k;
`multi30k.jsonl` is the official data with 2,900 training pairs moved to the validation split.
"""

import argparse
import gzip
import json
import random
from pathlib import Path


#: Number of English sentences of Tatoeba by split, and of the shifted splits.
SIZES = {"train": 8000, "validation": 3000, "held_out": 5000, "test": 1000}
SHIFTED = 500
#: Training pairs of Multi30k that are held out to fit what follows the training.
HELD_OUT = 2900


def read(path: str) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def merged(rows: list[dict[str, str]]) -> list[dict]:
    """One row for each English sentence, with all its French ones."""
    by_source: dict[str, list[str]] = {}
    for row in rows:
        by_source.setdefault(row["en"], []).append(row["fr"])
    return [{"en": source, "fr": texts[0], "references": texts} for source, texts in by_source.items()]


def chosen(rows: list[dict], count: int, split: str, seed: int) -> list[dict]:
    return [{"split": split, **row} for row in random.Random(seed).sample(rows, count)]


def tatoeba(arguments: argparse.Namespace) -> list[dict]:
    rows = random.Random(arguments.seed).sample(merged(read(arguments.tatoeba)), sum(SIZES.values()))
    splits, start = [], 0
    for split, size in SIZES.items():
        splits += [{"split": split, **row} for row in rows[start : start + size]]
        start += size
    captions = [row for row in read(arguments.multi30k) if row["split"] == "test_2016_flickr"]
    splits += chosen(merged(read(arguments.news)), SHIFTED, "news", arguments.seed)
    return splits + chosen(merged(captions), SHIFTED, "multi30k", arguments.seed)


def multi30k(arguments: argparse.Namespace) -> list[dict]:
    names = {"val": "validation", "test_2016_flickr": "test"}
    rows = [{**row, "split": names.get(row["split"], row["split"])} for row in read(arguments.multi30k)]
    train = [row for row in rows if row["split"] == "train"]
    for row in random.Random(arguments.seed).sample(train, HELD_OUT):
        row["split"] = "validation"
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tatoeba", "multi30k", "news"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--output", default="out/data")
    parser.add_argument("--seed", type=int, default=42)
    arguments = parser.parse_args()
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    for make in (tatoeba, multi30k):
        rows = make(arguments)
        path = folder / f"{make.__name__}.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        print(f"{path}: {len(rows):,} rows")
