"""The identities of a run's nodes and their proofs: names, certificates, TLS, refusal of strangers."""
