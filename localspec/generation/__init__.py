"""From messages to a reply: prompt, prefill, rounds, detokenizer, stop strings, prefix cache."""
