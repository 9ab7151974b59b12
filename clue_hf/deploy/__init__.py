"""Models in use: the pipeline, the demo page. Importing this registers `text-uncertainty` with transformers."""

from .pipeline import TextUncertaintyPipeline, UncertaintyPipeline, pipeline


__all__ = ["TextUncertaintyPipeline", "UncertaintyPipeline", "pipeline"]
