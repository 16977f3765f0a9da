"""The only room that touches llama_cpp: models, contexts, batches, devices."""
