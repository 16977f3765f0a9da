"""The decode round: plan, draft, score, verify, keep, learn."""
