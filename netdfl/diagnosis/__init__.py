"""Why a fleet stalls, and how faithful the emulation was."""
