"""Residual networks for images: the ResNets of He et al. and Wide ResNets, with dropout where the config puts it."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention

from ..mc_dropout import DropoutLinear, Replicas
from .configuration import CLUEResNetConfig


class LastNorm(nn.BatchNorm2d):
    """The BatchNorm at the end of a block, which may start at 0."""


class Block(nn.Module):
    """
    A residual block: a branch and a shortcut, added up. Layers are registered in the order in which they run.

    Args:
        in_channels, width, stride (`int`):
            Channels that come in, channels inside, and 2 where the size is halved.
        dropout (`float`):
            What is dropped before the last convolution; at 0 there is no such layer.
        starts_tail (`bool`):
            Whether this is the first dropout of the network, where the passes part.
    """

    #: Output channels as a multiple of the width, and the sizes of the convolutions.
    expansion: int = 1
    sizes: tuple[int, ...] = (3, 3)

    def __init__(self, in_channels: int, width: int, stride: int, dropout: float, starts_tail: bool) -> None:
        super().__init__()
        out_channels = width * self.expansion
        changes = stride != 1 or in_channels != out_channels
        self.shortcut = self.make_shortcut(in_channels, out_channels, stride) if changes else nn.Identity()
        self.make_branch(in_channels, width, stride)
        self.replicas = Replicas() if starts_tail else nn.Identity()
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.make_last(width, out_channels)

    def make_shortcut(self, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return nn.Sequential(_convolution(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))

    def make_branch(self, in_channels: int, width: int, stride: int) -> None:
        """The branch up to its last convolution."""
        for number, size in enumerate(self.sizes[:-1], 1):
            convolution = _convolution(in_channels if number == 1 else width, width, size, stride if size == 3 else 1)
            self.add_module(f"conv{number}", convolution)
            self.add_module(f"norm{number}", nn.BatchNorm2d(width))

    def make_last(self, width: int, out_channels: int) -> None:
        self.add_module(f"conv{len(self.sizes)}", _convolution(width, out_channels, self.sizes[-1]))
        self.last_norm = LastNorm(out_channels)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        shortcut = self.replicas(self.shortcut(hidden))
        *convolutions, last = (getattr(self, f"conv{number}") for number, _ in enumerate(self.sizes, 1))
        for number, convolution in enumerate(convolutions, 1):
            hidden = F.relu_(getattr(self, f"norm{number}")(convolution(hidden)))
        hidden = self.last_norm(last(self.dropout(self.replicas(hidden))))
        return F.relu_(hidden.add_(shortcut))


class Bottleneck(Block):
    """A block of three convolutions, 1x1, 3x3 and 1x1, the 3x3 on a quarter of the channels."""

    expansion, sizes = 4, (1, 3, 1)


class Preactivation(Block):
    """A block of two convolutions, each after its BatchNorm, as in Wide ResNets."""

    def make_shortcut(self, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return _convolution(in_channels, out_channels, 1, stride)

    def make_branch(self, in_channels: int, width: int, stride: int) -> None:
        self.norm1, self.conv1 = nn.BatchNorm2d(in_channels), _convolution(in_channels, width, 3, stride)
        self.norm2 = nn.BatchNorm2d(width)

    def make_last(self, width: int, out_channels: int) -> None:
        self.conv2 = _convolution(width, out_channels, 3)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        activated = F.relu_(self.norm1(hidden))
        shortcut = hidden if isinstance(self.shortcut, nn.Identity) else self.shortcut(activated)
        shortcut = self.replicas(shortcut)
        hidden = F.relu_(self.norm2(self.conv1(activated)))
        return self.conv2(self.dropout(self.replicas(hidden))).add_(shortcut)


BLOCK_CLASSES = {"basic": Block, "bottleneck": Bottleneck, "preactivation": Preactivation}


class CLUEResNetForImageClassification(PreTrainedModel):
    """
    A residual network with a classifier on top (see [`CLUEResNetConfig`]).

    With several stochastic passes ([`mc_logits`]) all that comes before the first dropout runs once.
    """

    config_class = CLUEResNetConfig
    config: CLUEResNetConfig
    main_input_name = "pixel_values"
    input_modalities = ["image"]
    accepts_loss_kwargs = False  # the loss is a mean over the batch, which transformers' trainer then divides

    def __init__(self, config: CLUEResNetConfig) -> None:
        super().__init__(config)
        preactivation = config.block == "preactivation"
        self.stem = _stem(config)
        self.stages = nn.Sequential(*_stages(config))
        self.last_norm = nn.BatchNorm2d(config.hidden_size) if preactivation else nn.Identity()
        self.classifier = DropoutLinear(config.hidden_size, cast(int, config.num_labels), dropout=config.dropout)
        self.post_init()

    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> ImageClassifierOutputWithNoAttention | tuple[torch.Tensor, ...]:
        """
        The logits of a batch of images.

        Args:
            pixel_values (`torch.Tensor` of shape `(batch, channels, height, width)`):
                The images.
            labels (`torch.Tensor` of shape `(batch,)`, *optional*):
                Their classes; with them the output has a loss, the mean cross-entropy.
            return_dict (`bool`, *optional*):
                Whether to return an output with names instead of a tuple.
        """
        pixel_values = pixel_values.contiguous(memory_format=torch.channels_last)  # faster, most so in narrow networks
        hidden = self.stages(self.stem(pixel_values))
        if self.config.block == "preactivation":
            hidden = F.relu_(self.last_norm(hidden))
        logits = self.classifier(hidden.mean((2, 3)))
        loss: Any = None if labels is None else F.cross_entropy(logits.float(), labels)
        if return_dict if return_dict is not None else self.config.return_dict:
            return ImageClassifierOutputWithNoAttention(loss=loss, logits=logits)
        return (logits,) if loss is None else (loss, logits)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            init.uniform_(module.weight, -bound, bound)
            init.uniform_(module.bias, -bound, bound)
            return
        super()._init_weights(module)
        if isinstance(module, nn.Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, LastNorm) and self.config.zero_init_residual:
            init.zeros_(module.weight)


def _stem(config: CLUEResNetConfig) -> nn.Sequential:
    large = config.stem == "imagenet"
    layers: list[nn.Module] = [_convolution(config.num_channels, config.stem_width, *((7, 2) if large else (3, 1)))]
    if config.block != "preactivation":
        layers += [nn.BatchNorm2d(config.stem_width), nn.ReLU(inplace=True)]
    if large:
        layers.append(nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*layers)


def _stages(config: CLUEResNetConfig) -> list[nn.Sequential]:
    block, stages, channels = BLOCK_CLASSES[config.block], [], config.stem_width
    last = len(config.depths) - 1
    first_dropped = {"all": 0, "last_stage": last, "classifier": last + 1}[config.dropout_from]
    for stage, (depth, width) in enumerate(zip(config.depths, config.widths, strict=True)):
        blocks = []
        for number in range(depth):
            stride = 2 if number == 0 and stage > 0 else 1
            dropout = config.dropout if stage >= first_dropped else 0.0
            blocks.append(block(channels, width, stride, dropout, stage == first_dropped and number == 0))
            channels = width * block.expansion
        stages.append(nn.Sequential(*blocks))
    return stages


class Downsampling(nn.Conv2d):
    """
    A 1x1 convolution with a stride, computed on every n-th pixel: the strided kernel of oneDNN for AVX2 (torch 2.13)
    writes out of bounds where channels are few.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        step = self.stride[0]
        return F.conv2d(input[..., ::step, ::step], self.weight)


def _convolution(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    kind = Downsampling if size == 1 and stride > 1 else nn.Conv2d
    return kind(in_channels, out_channels, size, stride, size // 2, bias=False)
