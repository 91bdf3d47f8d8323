"""The file port (`Files`, `File`) and its implementations."""

from storage.files.lossy import Crashed, LossyFiles
from storage.files.memory import MemoryFiles
from storage.files.port import Buffer, DirectoryLocked, File, Files
from storage.files.real import RealFiles
from storage.files.slow import SlowFiles

__all__ = [
    "Buffer",
    "Crashed",
    "DirectoryLocked",
    "File",
    "Files",
    "LossyFiles",
    "MemoryFiles",
    "RealFiles",
    "SlowFiles",
]
