"""Models where they are used: answers with their uncertainty. Importing this makes `text-uncertainty` a pipeline."""

from .card import write_card
from .deployed import Deployed
from .pipeline import TextUncertaintyPipeline, UncertaintyPipeline, pipeline
from .push import push_folder


__all__ = ["Deployed", "TextUncertaintyPipeline", "UncertaintyPipeline", "pipeline", "push_folder", "write_card"]
