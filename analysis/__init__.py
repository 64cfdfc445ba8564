"""What it means: frames in, frames out; reports at its edge."""
