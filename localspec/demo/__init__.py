"""The embedded pair, which MODEL_CARD.md describes, and the race of drafting against plain decoding
with a model that is grown from it to the cost of a large one.
"""
