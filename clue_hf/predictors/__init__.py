"""Models that answer: the only code outside training that runs one."""
