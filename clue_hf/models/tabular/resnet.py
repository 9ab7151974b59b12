"""The residual network for tables of Gorishniy et al. (2021): one number per row, and its variance if wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput

from ...errors import UserError
from ..mc_dropout import PackedDropout, Replicas
from .configuration import CLUETabularResNetConfig


@dataclass
class TabularRegressionOutput(ModelOutput):
    """
    What the model says of each row.

    Args:
        logits (`torch.Tensor` of shape `(batch, 1)` or `(batch, 2)`):
            The prediction; with a variance head also the logarithm of its variance.
    """

    logits: torch.Tensor | None = None


class Block(nn.Module):
    """
    A residual block: `x + dropout(linear(dropout(relu(linear(batch_norm(x))))))`. Layers are registered in the order
    in which they run.

    Args:
        config ([`CLUETabularResNetConfig`]):
            Widths and rates; at a rate of 0 there is no such layer.
        starts_tail (`bool`):
            Whether this is the first block, in which the passes part.
    """

    def __init__(self, config: CLUETabularResNetConfig, starts_tail: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(config.hidden_size)
        self.linear1 = nn.Linear(config.hidden_size, config.inner_size)
        self.replicas = Replicas() if starts_tail else nn.Identity()
        self.dropout = _dropout(config.dropout)
        self.linear2 = nn.Linear(config.inner_size, config.hidden_size)
        self.residual_dropout = _dropout(config.residual_dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        branch = self.replicas(F.relu_(self.linear1(self.norm(hidden))))
        branch = self.residual_dropout(self.linear2(self.dropout(branch)))
        return branch.add_(self.replicas(hidden))


class CLUETabularResNetForRegression(PreTrainedModel):
    """
    A residual network for tables that predicts one number per row (see [`CLUETabularResNetConfig`]).

    With several stochastic passes ([`mc_logits`]) all that comes before the first block's dropout runs once.
    """

    config_class = CLUETabularResNetConfig
    config: CLUETabularResNetConfig
    main_input_name = "numeric"
    input_modalities = ["tabular"]

    def __init__(self, config: CLUETabularResNetConfig) -> None:
        super().__init__(config)
        if not config.input_size:
            raise UserError("The model has no column to predict from: set `num_numeric` or `category_sizes`.")
        self.embeddings = nn.ModuleList(nn.Embedding(size, config.category_dim) for size in config.category_sizes)
        self.first = nn.Linear(config.input_size, config.hidden_size)
        self.blocks = nn.Sequential(*[Block(config, number == 0) for number in range(config.num_blocks)])
        self.last_norm = nn.BatchNorm1d(config.hidden_size)
        self.head = nn.Linear(config.hidden_size, 2 if config.variance_head else 1)
        self.post_init()

    def forward(
        self,
        numeric: torch.Tensor,
        categories: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        return_dict: bool | None = None,
    ) -> TabularRegressionOutput | tuple[torch.Tensor, ...]:
        """
        The predictions for a batch of rows.

        Args:
            numeric (`torch.Tensor` of shape `(batch, num_numeric)`):
                The numeric columns, standardised; of width 0 where there are none.
            categories (`torch.Tensor` of shape `(batch, columns)`, *optional*):
                The entry of each categorical column, from 0 on; `None` where there are none.
            labels (`torch.Tensor` of shape `(batch,)`, *optional*):
                Not used: the loss is the trainer's, which finds by this name what the targets are called.
            return_dict (`bool`, *optional*):
                Whether to return an output with names instead of a tuple.
        """
        self._check_rows(numeric, categories)
        features = [numeric.to(self.first.weight.dtype)]
        if categories is not None:
            features += self._embed(categories)
        hidden = self.blocks(self.first(torch.cat(features, 1)))
        # how the passes differ is the uncertainty, which the rounding of a bfloat16 output would add to
        with torch.autocast(hidden.device.type, enabled=False):
            hidden = hidden.to(self.head.weight.dtype)
            logits = self.head(F.relu_(self.last_norm(hidden)))
        if return_dict if return_dict is not None else self.config.return_dict:
            return TabularRegressionOutput(logits=logits)
        return (logits,)

    def _check_rows(self, numeric: torch.Tensor, categories: torch.Tensor | None) -> None:
        rows, sizes = len(numeric), self.config.category_sizes
        if numeric.shape != (rows, self.config.num_numeric):
            raise UserError(
                f"`numeric` is of shape {tuple(numeric.shape)}, but the model takes {self.config.num_numeric} numeric "
                f"columns: (rows, {self.config.num_numeric})."
            )
        if ((rows, 0) if categories is None else categories.shape) != (rows, len(sizes)):
            problem = "missing" if categories is None else f"of shape {tuple(categories.shape)}"
            raise UserError(
                f"`categories` is {problem}, but for these rows the model takes {len(sizes)} categorical columns: "
                f"{(rows, len(sizes))}."
            )
        if rows == 1 and self.last_norm.training:
            raise UserError(
                "A training batch of a single row has no BatchNorm statistics. Set dataloader_drop_last=True, or a "
                "batch size that does not leave one row over."
            )

    def _embed(self, categories: torch.Tensor) -> list[torch.Tensor]:
        try:
            return [table(column) for table, column in zip(self.embeddings, categories.unbind(1), strict=True)]
        except IndexError as error:  # on the CPU only, where it costs nothing to know
            sizes = torch.tensor(self.config.category_sizes)
            row, column = ((categories < 0) | (categories >= sizes)).nonzero()[0].tolist()
            raise UserError(
                f"Row {row} has the entry {categories[row, column]} in categorical column {column}, whose entries are "
                f"0 to {sizes[column] - 1}. Encode the rows as those the model was trained on."
            ) from error

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            super()._init_weights(module)
            return
        bound = 1 / math.sqrt(module.weight.shape[1])
        init.uniform_(module.weight, -bound, bound)
        if isinstance(module, nn.Linear):
            init.uniform_(module.bias, -bound, bound)


def _dropout(rate: float) -> nn.Module:
    return PackedDropout(rate) if rate > 0 else nn.Identity()
