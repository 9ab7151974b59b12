"""Small residual networks for the tests."""

from torch import nn

from clue_hf.models.vision import CLUEResNetConfig, CLUEResNetForImageClassification


def make_resnet(block="basic", **settings):
    """A network of three stages and four blocks, with BatchNorms that are not the identity."""
    # with fewer than 8 channels torch 2.13 writes out of bounds in the backward of a strided 1x1 convolution on a CPU
    config = CLUEResNetConfig(
        **{"depths": [1, 1, 2], "widths": [8, 16, 32], "stem_width": 8, "block": block, "num_labels": 5, **settings}
    )
    model = CLUEResNetForImageClassification(config)
    shake_norms(model)
    return model


def shake_norms(model):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean):
                nn.init.normal_(tensor)
            nn.init.uniform_(module.running_var, 0.5, 2)
