"""Calls besides the fleet's messages: between the supervisor and the nodes, and among nodes without a supervisor."""
