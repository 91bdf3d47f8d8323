"""A log directory's identity, lock, and folder names (B33, B51)."""

from __future__ import annotations

import dataclasses

import pytest

from protocol.ids import DirectoryId, uuid_to_text
from storage.files import LossyFiles, MemoryFiles
from storage.log import directory as folders
from storage.log.directory import Folder, MetaProperties, check_meta, write_meta
from storage.log.errors import BadLogDirectory

DIRECTORY_ID = DirectoryId(bytes(range(16)))
META = MetaProperties(cluster_id="5L6g3nShT-eMCtK--X86sw", node_id=7, directory_id=DIRECTORY_ID)


@pytest.fixture
def files():
    made = MemoryFiles()
    made.mkdirs("/data")
    return made


def test_meta_properties_come_back(files):
    folders.write_meta(files, "/data", META)
    assert folders.read_meta(files, "/data") == META
    assert folders.check_meta(files, "/data", node_id=7) == META
    assert folders.check_meta(files, "/data", node_id=7, cluster_id=META.cluster_id) == META
    lines = files.read("/data/meta.properties").decode().splitlines()
    assert lines == [
        "cluster.id=5L6g3nShT-eMCtK--X86sw",
        f"directory.id={uuid_to_text(DIRECTORY_ID)}",
        "node.id=7",
        "version=1",
    ]


ANY_TEXT = (
    "a,b,c",
    '"quoted"',
    "my cluster",
    " a:b=c#! ",
    "back\\slash",
    "a\tb\n",
    "z\u00fcrich",
    "\U0001f4be",
)


@pytest.mark.parametrize("cluster_id", [*ANY_TEXT, "x" * 32767])
def test_cluster_id_of_any_text_is_kept_in_ascii(files, cluster_id):
    """Kafka 4.3.1 formats and starts with any cluster id, and reads the file as Latin-1."""
    meta = dataclasses.replace(META, cluster_id=cluster_id)
    folders.write_meta(files, "/data", meta)
    assert files.read("/data/meta.properties").isascii()
    assert folders.check_meta(files, "/data", node_id=7, cluster_id=cluster_id) == meta


def test_cluster_id_in_kafkas_file_is_read_as_kafka_reads_it():
    """Kafka writes UTF-8 and reads Latin-1: its nodes use the text that results."""
    text = b"cluster.id=z\xc3\xbcrich \\: \\=\nnode.id=0\nversion=1\n"
    assert MetaProperties.decode(text).cluster_id == "z\u00c3\u00bcrich : ="


def test_cluster_id_that_is_not_unicode_is_refused():
    assert folders.cluster_id_problem("\udcff") == "the cluster id '\\udcff' is not valid Unicode"


def test_kafkas_own_file_is_read():
    text = b"#\n#Fri Jan 02 03:04:05 UTC 2026\ncluster.id=abc\nnode.id=0\nversion=1\n"
    assert MetaProperties.decode(text) == MetaProperties(
        cluster_id="abc", node_id=0, directory_id=None
    )


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("version=0", "version"),
        ("version=", "version=: only version 1 is known"),
        ("cluster.id=", "cluster.id"),
        (f"cluster.id={'x' * 32768}", "may have 32767 bytes in UTF-8, not 32768"),
        ("node.id=-1", "node.id"),
        ("node.id=../../1", "node.id"),
        ("node.id=99999999999", "node.id"),
        ("directory.id=../x", "directory.id"),
        ("directory.id=AAAAAAAAAAAAAAAAAAAAAQ", "directory.id"),
    ],
)
def test_values_that_make_no_sense_stop_the_start(files, line, names):
    content = META.encode().decode() + line + "\n"
    files.write_atomic("/data/meta.properties", content.encode())
    with pytest.raises(BadLogDirectory, match=names):
        folders.check_meta(files, "/data", node_id=7)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"a=\\u12"])
def test_files_that_are_no_meta_properties_stop_the_start(files, content):
    files.write_atomic("/data/meta.properties", content)
    with pytest.raises(BadLogDirectory, match="meta.properties"):
        folders.read_meta(files, "/data")


def test_a_file_of_something_else_is_called_so(files):
    files.write_atomic("/data/meta.properties", b"x\n")
    with pytest.raises(BadLogDirectory, match="it has no version, so it is no node's"):
        folders.read_meta(files, "/data")


def test_another_node_or_cluster_or_none(files):
    with pytest.raises(BadLogDirectory, match="not formatted"):
        folders.check_meta(files, "/data", node_id=7)
    folders.write_meta(files, "/data", META)
    with pytest.raises(BadLogDirectory, match="belongs to node 7, this is node 8"):
        folders.check_meta(files, "/data", node_id=8)
    with pytest.raises(BadLogDirectory, match="belongs to cluster"):
        folders.check_meta(files, "/data", node_id=7, cluster_id="other")


def test_a_directory_has_one_user(files):
    release = folders.lock_directory(files, "/data")
    with pytest.raises(BadLogDirectory, match="/data is in use"):
        folders.lock_directory(files, "/data")
    release()
    folders.lock_directory(files, "/data")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("topic-0", Folder("topic", 0)),
        ("a-b-12", Folder("a-b", 12)),
        ("__consumer_offsets-49", Folder("__consumer_offsets", 49)),
        (f"topic-3.{'0' * 32}-delete", Folder("topic", 3, "-delete")),
        (f"topic-3.{'af' * 16}-stray", Folder("topic", 3, "-stray")),
        (f"topic-3.{'af' * 16}-future", Folder("topic", 3, "-future")),
    ],
)
def test_folder_names(name, folder):
    assert folders.parse_folder(name) == folder


@pytest.mark.parametrize(
    "name",
    [
        "topic", "topic-", "-0", "..-0", ".-0", "top ic-0", "topic-x", "topic--1x", "topic-01",
        "topic-2147483648", "topic-٣", f"{'t' * 250}-0", "lost+found", "top\x00ic-0",
    ],
)  # fmt: skip
def test_strange_folder_names(name):
    with pytest.raises(ValueError):
        folders.parse_folder(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../../etc/x", "a\0b", "ü", "%2e%2e/", "t" * 250]
)
def test_no_path_from_an_illegal_name(name):
    with pytest.raises(ValueError):
        folders.folder_name(name, 0)
    with pytest.raises(ValueError):
        folders.folder_name("fine", -1)


def test_names_of_renamed_folders_fit_and_are_recognised():
    for topic in ("t", "t" * 249):
        name = folders.renamed_folder(topic, 2**31 - 1, b"\xab" * 16, "-delete")
        assert len(name) <= 255
        assert folders.parse_folder(name).suffix == "-delete"


def test_an_identity_that_was_believed_survives_a_power_cut():
    """The process that wrote the identity was killed before the file name was durable."""
    backing = MemoryFiles()
    backing.mkdirs("/data")

    def killed(kind: str, path: str) -> None:
        if kind == "fsync_dir":
            raise OSError("killed")

    files = LossyFiles(backing, on_op=killed)
    meta = MetaProperties(cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=1, directory_id=None)
    with pytest.raises(OSError, match="killed"):
        write_meta(files, "/data", meta)
    files.on_op = None
    assert check_meta(files, "/data", node_id=1) == meta
    files.crash()
    assert check_meta(LossyFiles(backing), "/data", node_id=1) == meta
