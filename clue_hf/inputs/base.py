"""What the inputs of every modality share: their settings, saved with a model, and rows that a predictor runs over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from ..errors import UserError
from ..models.uncertainty_file import damaged


if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class InputSettings:
    """
    Which columns are read and how texts are cut, as in [`CLUEConfig`]. Saved in `uncertainty.json`, so that a model is
    used with what it was trained with.
    """

    source_column: str | None = None
    target_column: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    source_prefix: str = ""
    max_source_length: int = 512
    max_target_length: int = 128

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """The fields of this name of a [`CLUEConfig`]."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    @classmethod
    def from_file(cls, name: str, stored: dict[str, Any]) -> Self:
        """What the `uncertainty.json` of a model says; the defaults where it says nothing."""
        content, defaults = stored.get("inputs", {}), asdict(cls())
        if not isinstance(content, dict):
            raise damaged(name, "inputs", f"it must be a map, not {content!r}")
        for key, value in content.items():
            expected = str if defaults.get(key) is None else type(defaults[key])
            if key not in defaults or not isinstance(value, expected) or isinstance(value, bool):
                raise damaged(name, "inputs", f"{key!r}: {value!r}")
        return cls(**content)

    def overridden(self, **settings: Any) -> Self:
        """The same with every setting replaced that is not `None`."""
        return replace(self, **{name: value for name, value in settings.items() if value is not None})

    def to_dict(self) -> dict[str, Any]:
        """The settings that are set, as plain data."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Rows(ABC):
    """Rows as a model reads them. `notes` says in sentences what was done to them, such as texts that were cut."""

    notes: Sequence[str] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        """The inputs of the model for some rows."""

    @abstractmethod
    def labelled(self, labels: np.ndarray, chosen: np.ndarray) -> Any:
        """The chosen rows with labels, one for each of them, as a trainer takes them."""

    def text(self, row: int) -> str | None:
        """A row as text, if it has one."""
        return None


class Inputs(ABC):
    """
    From rows to batches, for one modality.

    Attributes:
        processing_class:
            What is saved with the model to read its inputs: a tokenizer, an image processor, a table preprocessor.
        settings ([`InputSettings`]):
            Columns and lengths.
    """

    modality: ClassVar[str]
    #: The names of the [`InputSettings`] that change what the model reads, beside its processing class.
    used_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, processing_class: Any, settings: InputSettings | None = None) -> None:
        self.processing_class, self.settings = processing_class, settings or InputSettings()

    @abstractmethod
    def rows(self, values: Any, first_row: int = 0) -> Rows:
        """Values as people give them, one or many; `first_row` is the number of the first one in messages."""

    @abstractmethod
    def is_single(self, values: Any) -> bool:
        """Whether this is one value, not a list of one."""

    @abstractmethod
    def column(self, dataset: Any, target: str | None, split: str) -> Any:
        """The values of a dataset, beside its column `target`, as [`rows`] takes them."""

    def label_column(self, columns: list[str]) -> str:
        """The column of the class."""
        raise UserError(f"There are no classifiers of {self.modality}s.")

    # ---- training ----

    @abstractmethod
    def training_data(self, dataset: Any, target: str, labels: np.ndarray, config: Any, split: str) -> Any:
        """A dataset with labels as a trainer takes it."""

    def collator(self, config: Any) -> Any:
        """Makes batches of such a dataset; `None` leaves it to transformers."""
        return None

    def train_collator(self, config: Any) -> Any:
        """The same in training, where examples are varied; `None` where they are not."""
        return None
