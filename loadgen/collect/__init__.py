"""The collector: reads what a platform says about a scale-out, in a process of its own, and writes it to a run."""
