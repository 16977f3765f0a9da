"""The race: plain decoding against drafting with a model that costs what a large one costs."""
