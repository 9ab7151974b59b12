"""Which residual network for tables: its columns, width, blocks, and what is dropped in them."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from ...settings import check_minimum


class CLUETabularResNetConfig(PreTrainedConfig):
    """
    Configuration of a residual network for the rows of a table (Gorishniy et al., 2021).

    Args:
        num_numeric (`int`, *optional*, defaults to 0):
            Numeric columns; they enter as they are, so standardise them first.
        category_sizes (`list[int]`, *optional*, defaults to `[]`):
            Entries of each categorical column, the one for unknown values included.
        category_dim (`int`, *optional*, defaults to 16):
            Size of the embedding of a category; every column has a table of its own.
        hidden_size (`int`, *optional*, defaults to 128):
            Features between the blocks.
        num_blocks (`int`, *optional*, defaults to 4):
            Residual blocks.
        hidden_factor (`float`, *optional*, defaults to 2.0):
            Features inside a block, as a multiple of `hidden_size`.
        dropout (`float`, *optional*, defaults to 0.3):
            The share that is dropped inside a block, after its first linear layer. Several stochastic passes share
            all that comes before the dropout of the first block.
        residual_dropout (`float`, *optional*, defaults to 0.0):
            The share that is dropped at the end of a block, before the shortcut is added.
        variance_head (`bool`, *optional*, defaults to `False`):
            Whether the model also predicts the logarithm of the variance, as a second output.

    Example:

    ```python
    >>> from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression

    >>> config = CLUETabularResNetConfig(num_numeric=13, category_sizes=[8, 25])
    >>> model = CLUETabularResNetForRegression(config)
    ```
    """

    model_type = "clue_tabular_resnet"

    num_numeric: int = 0
    category_sizes: list[int] | tuple[int, ...] = ()
    category_dim: int = 16
    hidden_size: int = 128
    num_blocks: int = 4
    hidden_factor: float = 2.0
    dropout: float = 0.3
    residual_dropout: float = 0.0
    variance_head: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        self.category_sizes = list(self.category_sizes)
        if self.num_numeric < 0:
            raise ValueError(f"`num_numeric` must be at least 0, not {self.num_numeric!r}.")
        if any(size < 1 for size in self.category_sizes):
            raise ValueError(f"`category_sizes` must be positive, one number per column, not {self.category_sizes}.")
        check_minimum(1, category_dim=self.category_dim, hidden_size=self.hidden_size, num_blocks=self.num_blocks)
        if self.inner_size < 1:
            raise ValueError(f"`hidden_factor` leaves no feature inside a block: {self.hidden_factor!r}.")
        for name in ("dropout", "residual_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1, not {getattr(self, name)!r}.")
        self.problem_type = "regression"
        kwargs.setdefault("num_labels", 1)
        super().__post_init__(**kwargs)

    @property
    def input_size(self) -> int:
        """Features of a row: numbers and embeddings."""
        return self.num_numeric + len(self.category_sizes) * self.category_dim

    @property
    def inner_size(self) -> int:
        """Features inside a block."""
        return int(self.hidden_size * self.hidden_factor)
