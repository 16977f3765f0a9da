"""How the embedded demonstration pair is made: corpus, tokenizer, training, export, evaluation."""
