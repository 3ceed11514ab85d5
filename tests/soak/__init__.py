"""Proofs by repetition. Each module is one command that appends what it counted to docs/soak.jsonl."""
