"""The object-store port (`Objects`) and its implementations."""

from storage.objects.faulty import FaultyObjects, Weather
from storage.objects.memory import MemoryObjects
from storage.objects.open import open_objects
from storage.objects.port import (
    FileRange,
    ObjectCorrupt,
    ObjectError,
    ObjectInfo,
    ObjectNotFound,
    ObjectRefused,
    ObjectRetriable,
    Objects,
    Source,
)
from storage.objects.settings import StoreSettings

__all__ = [
    "FaultyObjects",
    "FileRange",
    "MemoryObjects",
    "ObjectCorrupt",
    "ObjectError",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectRefused",
    "ObjectRetriable",
    "Objects",
    "Source",
    "StoreSettings",
    "Weather",
    "open_objects",
]
