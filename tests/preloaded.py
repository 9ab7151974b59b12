"""What the process imports from which those of the tests are forked; the phrases are drawn once for all."""

import gc

import datasets  # noqa: F401
import peft  # noqa: F401
import scipy.stats  # noqa: F401
import sklearn.metrics  # noqa: F401
import torch._dynamo  # noqa: F401
import transformers.models.t5.modeling_t5  # noqa: F401

import clue_hf.cli.compare
import clue_hf.cli.evaluate
import clue_hf.cli.predict
import clue_hf.cli.train  # noqa: F401
from clue_hf.data.embedded.phrases import load_phrases


load_phrases()
# every training begins by collecting garbage, which takes long where it looks through all of this
gc.freeze()
