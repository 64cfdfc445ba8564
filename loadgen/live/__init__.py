"""The live page in Locust's web UI: what a replay and its platform are doing now, bounded for runs of any length."""
