"""The course's secret, from which each student's hidden inputs come. It leaves the course folder in no form."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from graders.course.files import Refused, read_plain

NAME = ".secret"
LENGTH = 32
LONGEST = 4096
SEED_BITS = 53  # what every reader of JSON takes for a whole number


class NoSecret(Exception):
    """There is no secret that can be used; the message says what to do."""


def create(course: Path) -> None:
    """A new secret, readable by its owner only. FileExistsError where there is one."""
    handle = os.open(course / NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(LENGTH) + "\n")


def read(course: Path) -> bytes:
    """The secret of a course; NoSecret where it is missing, too short, or readable by others."""
    path = course / NAME
    try:
        mode = path.lstat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise NoSecret(f"other users can read {path}: run `chmod 600 {path}`")
        secret = read_plain(str(path), LONGEST).strip()
    except (OSError, Refused) as error:
        raise NoSecret(f"{path} holds the course's secret and cannot be read: {error}") from None
    if len(secret) < LENGTH:
        raise NoSecret(f"{path} is too short for a secret: put back the one that the course was made with")
    return secret


def seed_of(secret: bytes, unit: str, student: str) -> int:
    """The seed of one student's hidden inputs for one unit."""
    digest = hmac.digest(secret, f"{unit}\0{student}".encode("utf-8", "surrogateescape"), "sha256")
    return int.from_bytes(digest) >> (8 * len(digest) - SEED_BITS)
