from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Sampler
from transformers.utils import logging

from .base import Objective


if TYPE_CHECKING:
    from ..trainer import CLUETrainer

logger = logging.get_logger(__name__)


class EUAT(Objective):
    """
    Error-driven uncertainty-aware training (Mendes et al.): after plain training, `mean over wrong of (CE - PE) + mean
    over right of (CE + PE)`. What is classified wrongly should be uncertain, what is right should be certain.

    Half of each batch comes from either set. The sets are refreshed by the current model after every epoch, and an
    example's sign is that of its set. Where one of them is empty, batches are drawn as usual, with a warning. Where a
    plain phase ends within an epoch, the rest of that epoch has usual batches too, and the signs of the moment.

    Requirements:
        A classifier, and training data with a length. The sets are saved in checkpoints.
    """

    needs_logits = True
    needs_row = True

    def __init__(self) -> None:
        #: for each row of the training data, whether the model got it wrong at the last refresh
        self.wrong: torch.Tensor | None = None

    def item_loss(self, error, uncertainty, logits=None, labels=None, row=None):
        if row is None or self.wrong is None:  # evaluation, or no sets yet: wrong is what is wrong now
            wrong, halves = logits.argmax(-1) != labels, 1
        else:
            # the sum of the means over two halves of a batch is twice the mean over the whole
            wrong, halves = self.wrong.to(row.device)[row], 2 if self.has_both_sets else 1
        return halves * (error + torch.where(wrong, -uncertainty, uncertainty))

    @property
    def has_both_sets(self) -> bool:
        return self.wrong is not None and 0 < int(self.wrong.sum()) < len(self.wrong)

    def on_train_begin(self, trainer: CLUETrainer) -> None:
        """
        The first sets; after a checkpoint of the last step of an epoch, written before its end, those of the next.
        """
        self.on_epoch_end(trainer)

    def on_epoch_end(self, trainer: CLUETrainer) -> None:
        """New sets, by what the model gets wrong now; they change between whole epochs only."""
        if trainer.in_plain_phase or not float(trainer.state.epoch or 0).is_integer():
            return
        predicted = trainer.class_probabilities(trainer.train_dataset, "Finding wrong predictions")
        self.wrong = torch.from_numpy(predicted.log_probabilities.argmax(-1) != predicted.labels)
        if not self.has_both_sets:
            missing = "wrong" if not self.wrong.any() else "right"
            logger.warning(
                f"EUAT: the model gets nothing {missing} in the training data: this epoch uses ordinary batches."
            )

    def train_sampler(self, trainer: CLUETrainer) -> Sampler[int] | None:
        """Half of each batch from either set, once the plain phase is over."""
        return HalvesSampler(
            len(trainer.train_dataset),  # type: ignore[arg-type]
            trainer.args.seed,
            lambda: int(trainer.state.epoch or 0),
            lambda: self.wrong if self.has_both_sets else None,
        )

    def state_dict(self):
        return {} if self.wrong is None else {"wrong": self.wrong}

    def load_state_dict(self, state):
        self.wrong = state.get("wrong")


class HalvesSampler(Sampler[int]):
    """
    As many rows as there are, by turns from a set and from the rest, each drawn without replacement until it is used
    up: half of any batch comes from either. Or all rows at random where there is no set.

    Args:
        size, seed (`int`):
            Rows of the data; the order depends on the seed and the epoch.
        epoch, chosen (`Callable`):
            The epoch that begins, and the set (a boolean per row) or `None`.
    """

    def __init__(
        self,
        size: int,
        seed: int,
        epoch: Callable[[], int],
        chosen: Callable[[], torch.Tensor | None],
    ) -> None:
        self.size, self.seed, self.epoch, self.chosen = size, seed, epoch, chosen

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + 1_000_003 * self.epoch())
        chosen = self.chosen()
        if chosen is None:
            yield from torch.randperm(self.size, generator=generator).tolist()
            return
        sets = [_endless(torch.nonzero(part).flatten(), generator) for part in (chosen, ~chosen)]
        for place in range(self.size):
            yield next(sets[place % 2])


def _endless(rows: torch.Tensor, generator: torch.Generator) -> Iterator[int]:
    """The rows in random order, and again in another."""
    while True:
        yield from rows[torch.randperm(len(rows), generator=generator)].tolist()
