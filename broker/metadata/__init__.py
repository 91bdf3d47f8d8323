"""The metadata image as this broker's handlers read it."""
