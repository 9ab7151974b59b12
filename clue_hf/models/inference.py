"""How a model is run when it is not trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from ..kernels.products import FastLayers


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients, and [`FastLayers`] where the model is on a processor."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), FastLayers() if next(model.parameters()).is_cpu else nullcontext():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
