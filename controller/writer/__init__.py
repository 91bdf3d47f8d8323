"""The controller's single writer, and the operations that it runs."""
