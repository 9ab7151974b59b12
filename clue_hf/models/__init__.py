"""Loading and building models. Importing this makes our own known to transformers' Auto classes."""

from . import tabular as tabular
from . import vision as vision
