"""The node: runtime, mailbox, waits."""
