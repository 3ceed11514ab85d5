"""Shared memory: bodies of messages in memory that the processes of one machine share."""
