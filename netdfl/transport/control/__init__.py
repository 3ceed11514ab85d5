"""Control calls, apart from training's messages: between supervisor and nodes, and among nodes without a supervisor."""
