"""Characters that are not printable by Python's rule, and what to do with them on a terminal."""

JOINERS = "\u200c\u200d"
"""Zero-width (non-)joiners: part of emoji and of words in several scripts, so they are kept."""
BIDI_CONTROLS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Code points that reorder the text after them; on a terminal, also text that is not theirs."""
