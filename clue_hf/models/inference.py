"""How a model is run when it is not trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from ..kernels.products import IS_FAST, FastLayers


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients, and [`FastLayers`] where the model is on a processor that has them."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        fast = IS_FAST and next(model.parameters()).is_cpu
        with torch.no_grad(), FastLayers() if fast else nullcontext():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
