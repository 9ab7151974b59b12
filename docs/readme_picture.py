"""Draws docs/images/readme.png: translations of a calibrated model, their tokens shaded by entropy, and an abstention.

Run as `.venv/bin/python docs/readme_picture.py out/translator 0.7` with a model that `clue-hf calibrate` (or the first
example of README.md) has written, and a quality that is certified for it. Needs Chromium.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from clue_hf import pipeline


SENTENCES = [
    "She bought a red car yesterday.",
    "I have never seen such a beautiful sunset.",
    "I'd rather you didn't beat around the bush.",
]
#: Entropy (nats) from which on a token is shaded in full.
FULL = 2.5
WIDTH, HEIGHT = 900, 392
STYLE = """
* { box-sizing: border-box; }
body { margin: 0; padding: 18px 22px; background: #fff; color: #1f2328; font: 17px/1.4 "DejaVu Sans", sans-serif; }
.row { border: 1px solid #d1d9e0; border-radius: 10px; padding: 13px 18px; margin-bottom: 12px; display: grid;
  grid-template-columns: 1fr 190px; gap: 4px 20px; }
.source { color: #59636e; font-size: 15px; }
.output { font-size: 19px; line-height: 1.7; }
.output span { border-radius: 4px; padding: 2px 0; }
.verdict { grid-row: 1 / 3; grid-column: 2; align-self: center; text-align: right; }
.verdict b { display: block; font-size: 18px; color: #1a7f37; }
.verdict small, .legend { color: #59636e; font-size: 14px; }
.bar { height: 8px; border-radius: 4px; background: #e6eaef; margin: 6px 0 4px; }
.bar i { display: block; height: 8px; border-radius: 4px; background: #1a7f37; }
.abstain .verdict b { color: #b3261e; }
.abstain .bar i { background: #b3261e; }
.legend i { display: inline-block; width: 110px; height: 11px; border-radius: 3px; vertical-align: -1px;
  background: linear-gradient(90deg, rgb(255 140 60 / 0), rgb(255 140 60 / 1)); border: 1px solid #d1d9e0; }
"""


def row(source: str, answer: dict[str, Any]) -> str:
    spans = "".join(map(shaded, answer["tokens"]))
    share = f"{answer['confidence']:.0%}"
    verdict = "abstains" if answer["abstain"] else "answers"
    return (
        f'<div class="row {"abstain" if answer["abstain"] else ""}"><div class="source">{escape(source)}</div>'
        f'<div class="output">{spans}</div><div class="verdict"><b>{verdict}</b><div class="bar"><i style="width: '
        f'{share}"></i></div><small>confidence {answer["confidence"]:.2f}</small></div></div>'
    )


def shaded(token: dict[str, Any]) -> str:
    text = escape(token["token"].replace("▁", " ").replace("</s>", ""))
    return f'<span style="background: rgb(255 140 60 / {min(token["entropy"] / FULL, 1):.2f})">{text}</span>'


def main(model: str, min_quality: float) -> None:
    answers = pipeline(model)(SENTENCES, min_quality=min_quality, return_tokens=True)
    rows = "".join(map(row, SENTENCES, answers))
    legend = (
        f'<div class="legend">entropy of each token, from 0 <i></i> to {FULL:g} nats; confidence: quality to expect '
        f"(chrF); abstains above the uncertainty that is certified for a mean quality of {min_quality:g}</div>"
    )
    picture = Path(__file__).with_name("images") / "readme.png"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>{rows}{legend}', encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=2"]
        quiet = ["--disable-background-networking", f"--user-data-dir={folder}/profile"]
        window = [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={picture}"]
        subprocess.run(["chromium", *options, *quiet, *window, page.as_uri()], check=True, capture_output=True)
    for source, answer in zip(SENTENCES, answers, strict=True):
        print(f"{source}\n  {answer['generated_text']}  {answer['confidence']:.2f}  abstain: {answer['abstain']}")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
