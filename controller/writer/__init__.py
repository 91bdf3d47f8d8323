"""The controller's single writer, and the operations that ride on it."""
