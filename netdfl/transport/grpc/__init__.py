"""Messages over gRPC: a server for each process, an open stream for each destination."""
