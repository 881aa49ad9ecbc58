"""Special tokens: where a text holds them, and which of them a call may give."""
