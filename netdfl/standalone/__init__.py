"""A node without a supervisor, and what becomes of what such nodes write."""
