"""Colours of pages and figures."""

from __future__ import annotations


#: Colours of lines on a light and on a dark background, distinct for any colour vision: the first four from each
#: other, the last four (drawn dashed) from each other, and the two halves by their dashes.
LIGHT = ("#0072b2", "#d55e00", "#00916a", "#7a1f78", "#27307a", "#3a98e0", "#7d1d10", "#a07a00")
DARK = ("#4aa3e8", "#f5853f", "#25b88c", "#f3b4ea", "#8b90ff", "#b5e3ff", "#ff6f61", "#e6cf45")

#: Text, secondary text, secondary bars, and lines of the frame in figures.
INK, MUTED, GREY, FAINT = "#1f2328", "#59636e", "#8c959f", "#d1d9e0"
#: Targets outside their interval.
OUTSIDE = "#b3261e"
