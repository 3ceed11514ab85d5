"""The scenario's links above a transport that carries messages in real time."""
