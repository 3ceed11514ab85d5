"""Generated from protos/netdfl/v1 by protos/generate.py."""
