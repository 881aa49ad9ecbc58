"""What a power loss leaves: recorded file operations, replayed in every order that fsync allows."""
