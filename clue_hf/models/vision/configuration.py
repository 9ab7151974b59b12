"""Which residual network: depths, widths, blocks, stem, and where its dropout begins."""

from __future__ import annotations

import re
from typing import Any

from transformers import PreTrainedConfig

from ...errors import UserError
from ...settings import check_choice


BLOCKS = ("basic", "bottleneck", "preactivation")
STEMS = ("cifar", "imagenet")
DROPOUT_FROM = ("classifier", "last_stage", "all")

# The networks of He et al.: for large images (also used for small ones, with the other stem), and for CIFAR
_LARGE: dict[str, dict[str, Any]] = {
    "resnet18": {"depths": [2, 2, 2, 2]},
    "resnet34": {"depths": [3, 4, 6, 3]},
    "resnet50": {"depths": [3, 4, 6, 3], "block": "bottleneck"},
    "resnet101": {"depths": [3, 4, 23, 3], "block": "bottleneck"},
}
_SMALL = {f"resnet{6 * blocks + 2}": blocks for blocks in (1, 2, 3, 5, 7, 9, 18)}


class CLUEResNetConfig(PreTrainedConfig):
    """
    Configuration of a residual network for images.

    Args:
        depths (`list[int]`, *optional*, defaults to `[2, 2, 2, 2]`):
            Blocks in each stage. Every stage but the first halves the size of the image.
        widths (`list[int]`, *optional*, defaults to `[64, 128, 256, 512]`):
            Channels in each stage; a bottleneck block puts out four times as many.
        stem_width (`int`, *optional*, defaults to 64):
            Channels after the first convolution.
        block (`str`, *optional*, defaults to `"basic"`):
            `"basic"` and `"bottleneck"` (He et al.), or `"preactivation"` (two convolutions, each after its BatchNorm:
            Wide ResNets).
        stem (`str`, *optional*, defaults to `"cifar"`):
            `"cifar"`: one 3x3 convolution. `"imagenet"`: one 7x7 convolution and a max-pool, a quarter of the size.
        num_channels (`int`, *optional*, defaults to 3):
            Channels of the image.
        dropout (`float`, *optional*, defaults to 0.0):
            The share that is dropped.
        dropout_from (`str`, *optional*, defaults to `"classifier"`):
            Where dropout begins: `"classifier"` is before the classifier only, `"last_stage"` also in the blocks of
            the last stage, `"all"` also in all other blocks. In a block it stands before the last convolution. Several
            stochastic passes share all that comes before the first dropout.
        zero_init_residual (`bool`, *optional*, defaults to `False`):
            Whether every block starts as the identity, by a last BatchNorm of weight 0.

    Example:

    ```python
    >>> from clue_hf.models.vision import CLUEResNetConfig, CLUEResNetForImageClassification

    >>> config = CLUEResNetConfig.preset("resnet18", num_labels=10, dropout=0.3)
    >>> model = CLUEResNetForImageClassification(config)
    ```
    """

    model_type = "clue_resnet"

    depths: list[int] | tuple[int, ...] = (2, 2, 2, 2)
    widths: list[int] | tuple[int, ...] = (64, 128, 256, 512)
    stem_width: int = 64
    block: str = "basic"
    stem: str = "cifar"
    num_channels: int = 3
    dropout: float = 0.0
    dropout_from: str = "classifier"
    zero_init_residual: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        check_choice("block", self.block, BLOCKS)
        check_choice("stem", self.stem, STEMS)
        check_choice("dropout_from", self.dropout_from, DROPOUT_FROM)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1, not {self.dropout!r}.")
        self.depths, self.widths = list(self.depths), list(self.widths)
        if len(self.depths) != len(self.widths) or not self.depths or min(*self.depths, *self.widths) < 1:
            raise ValueError(
                f"`depths` and `widths` must be of the same length, one positive number per stage, not {self.depths} "
                f"and {self.widths}."
            )
        if self.zero_init_residual and self.block == "preactivation":
            raise ValueError("`zero_init_residual` needs a block that ends in a BatchNorm; preactivation has none.")
        super().__post_init__(**kwargs)

    @property
    def hidden_size(self) -> int:
        """Features before the classifier."""
        return self.widths[-1] * (4 if self.block == "bottleneck" else 1)

    @classmethod
    def preset(cls, name: str, **settings: Any) -> CLUEResNetConfig:
        """
        The configuration of a network known by name.

        Args:
            name (`str`):
                `resnet18`, `resnet34`, `resnet50`, `resnet101` (width 64); `resnet8`, `resnet14`, `resnet20`,
                `resnet32`, `resnet44`, `resnet56`, `resnet110` (width 16, for CIFAR); `wide_resnet28_10` and other
                depths and factors. With `_imagenet` at the end, the stem for large images.
            settings:
                Whatever else differs from the defaults: `num_labels`, `dropout` ...
        """
        architecture = _architecture(name.removesuffix("_imagenet"))
        if architecture is None:
            presets = ", ".join([*_SMALL, *_LARGE, "wide_resnet28_10"])
            raise UserError(f"There is no network {name!r}. Known: {presets}; each also with `_imagenet` at the end.")
        stem = "imagenet" if name.endswith("_imagenet") else "cifar"
        return cls(**{**architecture, "stem": stem, **settings})


def _architecture(name: str) -> dict[str, Any] | None:
    if name in _LARGE:
        return _LARGE[name]
    if name in _SMALL:
        return {"depths": [_SMALL[name]] * 3, "widths": [16, 32, 64], "stem_width": 16}
    wide = re.fullmatch(r"wide_resnet(\d+)_(\d+)", name)
    if not wide:
        return None
    depth, factor = map(int, wide.groups())
    if depth < 10 or (depth - 4) % 6 or factor < 1:
        raise UserError(f"{name!r}: the depth of a Wide ResNet is 6 n + 4 (10, 16, 22, 28, 34, 40 ...).")
    widths = [factor * width for width in (16, 32, 64)]
    return {"depths": [(depth - 4) // 6] * 3, "widths": widths, "stem_width": 16, "block": "preactivation"}
