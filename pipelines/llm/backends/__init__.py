"""Where answers come from: `embedded`, `openai`, `replay`, behind one interface."""
