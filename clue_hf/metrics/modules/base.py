"""What the modules share: two columns of numbers, and whom to cite."""

from __future__ import annotations

import inspect

import datasets
import evaluate


CITATION = """\
@misc{clue,
    title = {{CLUE}: Neural Networks Calibration via Learning Uncertainty-Error alignment},
    author = {Mendes, Pedro and Romano, Paolo and Garlan, David},
    year = {2025},
}
"""


class NumberMetric(evaluate.Metric):
    """A metric of two numbers per item. Its docstring says what they are; `_compute` gets them as lists."""

    def _info(self) -> evaluate.MetricInfo:
        text = inspect.cleandoc(self.__doc__ or "")
        return evaluate.MetricInfo(
            description=text.split("\n\n")[0],
            citation=CITATION,
            inputs_description=text,
            features=datasets.Features(
                {"predictions": datasets.Value("float64"), "references": datasets.Value("float64")}
            ),
        )
