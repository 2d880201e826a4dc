"""Draft models whose tokenizer is not the target's, by tokens that both have or by text (2502.05202)."""
