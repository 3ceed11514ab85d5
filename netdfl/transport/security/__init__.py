"""The identities of a run's nodes and what proves them: names, certificates, TLS, strangers."""
