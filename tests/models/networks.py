"""Small residual networks for the tests."""

from torch import nn

from clue_hf.models.vision import CLUEResNetConfig, CLUEResNetForImageClassification


def make_resnet(block="basic", **settings):
    """A network of three stages and four blocks, with BatchNorms that are not the identity."""
    config = CLUEResNetConfig(
        **{"depths": [1, 1, 2], "widths": [4, 8, 16], "stem_width": 4, "block": block, "num_labels": 5, **settings}
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
