"""Files inside the published archives, read without unpacking anything to disk."""

import tarfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Member:
    """A file of an archive, with what of a Path's interface its readers use.

    Attributes
    ----------
    archive : Path
        The archive.
    name : str
        The file's name, without folders.
    content : bytes
        What is in it.
    """

    archive: Path
    name: str
    content: bytes = field(repr=False)

    def is_file(self) -> bool:
        return True

    def read_bytes(self) -> bytes:
        return self.content

    def __str__(self) -> str:
        return f"{self.archive}: {self.name}"


def read_members(archive: Path, names: Collection[str], most: int) -> dict[str, Member]:
    """Read files of a compressed tar archive, in one pass over it."""
    found = {}
    try:
        with tarfile.open(archive) as files:
            for entry in files:
                name = PurePosixPath(entry.name).name
                if name in names and entry.size > most:
                    raise ValueError(f"{archive}: {name}: expected at most {most} bytes, got {entry.size}")
                content = files.extractfile(entry) if entry.isfile() and name in names else None
                if content is not None:
                    found[name] = Member(archive, name, content.read())
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"{archive}: truncated or no tar archive: expected one of {', '.join(names)}, got: {error}"
        ) from error
    return found
