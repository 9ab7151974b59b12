"""Models in use: calibration, pipeline, demo page. Importing this registers `text-uncertainty` with transformers."""

from .calibrating import calibrate
from .pipeline import TextUncertaintyPipeline, UncertaintyPipeline, pipeline


__all__ = ["TextUncertaintyPipeline", "UncertaintyPipeline", "calibrate", "pipeline"]
