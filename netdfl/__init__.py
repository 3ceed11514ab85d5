"""netdfl: an asyncio message-passing emulator for decentralized federated learning."""
