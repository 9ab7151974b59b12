"""Residual networks for tables, known to transformers' Auto classes once this is imported."""

from transformers import AutoConfig, AutoModel

from .configuration import CLUETabularResNetConfig
from .resnet import CLUETabularResNetForRegression, TabularRegressionOutput


AutoConfig.register(CLUETabularResNetConfig.model_type, CLUETabularResNetConfig)
AutoModel.register(CLUETabularResNetConfig, CLUETabularResNetForRegression)

__all__ = ["CLUETabularResNetConfig", "CLUETabularResNetForRegression", "TabularRegressionOutput"]
