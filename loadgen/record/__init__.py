"""Recording real traffic: a pass-through proxy that writes a trace."""
