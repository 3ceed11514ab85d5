"""The node: the runtime around an algorithm's loop, the mailbox, waits for messages and the failure detector."""
