"""An autoscaled LLM endpoint and its platform: a pure, seeded model, and a server that speaks the real protocols."""
