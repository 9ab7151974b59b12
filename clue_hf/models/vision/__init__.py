"""Residual networks for images, known to transformers' Auto classes once this is imported."""

from transformers import AutoConfig, AutoModelForImageClassification

from .configuration import CLUEResNetConfig
from .resnet import CLUEResNetForImageClassification


AutoConfig.register(CLUEResNetConfig.model_type, CLUEResNetConfig)
AutoModelForImageClassification.register(CLUEResNetConfig, CLUEResNetForImageClassification)

__all__ = ["CLUEResNetConfig", "CLUEResNetForImageClassification"]
