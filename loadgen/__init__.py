"""What touches the world: the replay, the endpoint clients, the collector and the emulator."""
