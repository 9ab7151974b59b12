"""
Loading and building models. Our own are known to transformers' Auto classes once `kind` is imported, as every module
does that loads or runs a model; those that only read the files of one need no torch.
"""
