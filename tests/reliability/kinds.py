"""One small trainer for each kind of data: texts, images, and tables with a number to predict."""

import torch
from classifiers import class_trainer, image_data, make_vit
from helpers import make_data, make_model, make_trainer
from number_models import make_preprocessor, make_tabular
from torch import nn
from transformers import TrainerCallback

from clue_hf.data.embedded.diabetes import load_diabetes_splits


KINDS = ("text", "image", "number")


class FrozenNorm(nn.BatchNorm1d):
    """Stays in evaluation mode, so that one row may be a batch."""

    def train(self, mode=True):
        return super().train(False)


def make_kind(kind, folder, seed=0, dropout=True, rows=16, **settings):
    """A trainer of a kind, with `rows` to train on and 7 others to evaluate; numbers without dropout have a head."""
    if kind == "text":
        model = make_model("t5", seed=seed, dropout=dropout)
        return make_trainer(model, folder, make_data("t5", rows), make_data("t5", 7, seed=2), **settings)
    if dropout:
        settings = {"mc_samples": 3, **settings}
    if kind == "image":
        model = make_vit(0.3 if dropout else None, seed)
        return class_trainer(model, folder, image_data(rows), image_data(7, seed=5), **settings)
    splits = load_diabetes_splits()
    preprocessor = make_preprocessor(splits["train"])
    model = make_tabular(preprocessor, seed, dropout=0.3 if dropout else 0.0, variance_head=not dropout)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.__class__ = FrozenNorm
    return make_trainer(
        model, folder, splits["train"].select(range(rows)), splits["test"].select(range(7)), preprocessor, **settings
    )


def weights_of(trainer):
    return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}


class Watch(TrainerCallback):
    """Keeps the gradients of every step, and the weights before it."""

    def __init__(self, trainer):
        self.trainer, self.gradients, self.weights = trainer, [], {}
        trainer.add_callback(self)

    def on_step_begin(self, args, state, control, **kwargs):
        self.weights[state.global_step] = weights_of(self.trainer)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        found = [weight.grad.flatten() for weight in self.trainer.model.parameters() if weight.grad is not None]
        self.gradients.append(torch.cat(found).double() if found else None)
