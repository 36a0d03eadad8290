"""Tags, note and archive mark of a run, which users set after its start; deletion of a run.

They are stored in `annotations.json` of the run directory, beside the record that the run writes,
so a restart of the run keeps them. The last writer wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace

from syncline.records import dataclass
from syncline.runs import json_values
from syncline.runs.run_directory import ANNOTATIONS_FILE, RUN_FILE
from syncline.runs.run_storage import StorageDirectory

MAX_TAGS = 50
MAX_TAG_CHARACTERS = 64
MAX_NOTE_CHARACTERS = 10_000
_MAX_BYTES = 1024**2


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """What users have noted about a run."""

    tags: tuple[str, ...] = ()
    """Tags in the order in which they were added."""
    note: str = ""
    """Text of any length up to `MAX_NOTE_CHARACTERS`."""
    archived: bool = False
    """Lists leave archived runs out by default."""


def read_annotations(run: StorageDirectory) -> Annotations:
    """Return the annotations of a run; empty ones if there are none or the file is damaged.

    Raises:
        OSError: The file cannot be read.
    """
    data = run.read_range(ANNOTATIONS_FILE, 0, _MAX_BYTES)
    if not data:
        return Annotations()
    try:
        found = json_values.parse_json(data)
    except ValueError:
        return Annotations()
    if not isinstance(found, dict):
        return Annotations()
    tags, note = found.get("tags"), found.get("note")
    return Annotations(
        tags=tuple(
            tag[:MAX_TAG_CHARACTERS]
            for tag in (tags if isinstance(tags, list) else [])[:MAX_TAGS]
            if isinstance(tag, str) and tag
        ),
        note=note[:MAX_NOTE_CHARACTERS] if isinstance(note, str) else "",
        archived=found.get("archived") is True,
    )


def annotate(
    run: StorageDirectory,
    *,
    add_tags: Iterable[str] = (),
    remove_tags: Iterable[str] = (),
    note: str | None = None,
    archived: bool | None = None,
) -> Annotations:
    """Change the annotations of a run; return the new ones.

    Args:
        run: Directory of the run.
        add_tags: Tags to add, spaces around them removed; tags that the run has are kept as they
            are.
        remove_tags: Tags to remove; unknown tags are ignored.
        note: Note that replaces the present one; "" removes it. None keeps it.
        archived: True archives the run, False brings it back. None changes nothing.

    Raises:
        ValueError: A tag is empty or too long, there are too many tags, the note is too long, or
            the directory holds no run.
        OSError: The file cannot be read or written.
    """
    if run.file_info(RUN_FILE) is None:
        raise ValueError(
            f"{run.path} holds no run, so it cannot be annotated: it has no {RUN_FILE}"
        )
    before = read_annotations(run)
    removed = {tag.strip() for tag in remove_tags}
    tags = tuple(dict.fromkeys((*before.tags, *map(_checked_tag, add_tags))))
    after = replace(
        before,
        tags=tuple(tag for tag in tags if tag not in removed),
        note=before.note if note is None else note.strip(),
        archived=before.archived if archived is None else archived,
    )
    if len(after.tags) > MAX_TAGS:
        raise ValueError(f"The run would have {len(after.tags)} tags: a run has up to {MAX_TAGS}.")
    if len(after.note) > MAX_NOTE_CHARACTERS:
        raise ValueError(
            f"The note has {len(after.note)} characters: a note has up to {MAX_NOTE_CHARACTERS}."
        )
    if after != before:
        run.write(ANNOTATIONS_FILE, json.dumps(asdict(after), ensure_ascii=False).encode())
    return after


def delete_run(run: StorageDirectory) -> None:
    """Delete the directory of a run: its record, logs and checkpoints. The caller has made sure
    that the run is not running.

    Raises:
        ValueError: The directory holds no run.
        OSError: A file cannot be deleted; files deleted before it are lost.
    """
    if run.file_info(RUN_FILE) is None:
        raise ValueError(f"{run.path} holds no run, so it is not deleted: it has no {RUN_FILE}")
    run.remove_tree()


def _checked_tag(tag: str) -> str:
    clean = tag.strip()
    if not 0 < len(clean) <= MAX_TAG_CHARACTERS or not clean.isprintable() or "," in clean:
        raise ValueError(
            f"{tag!r:.100} is not a tag: a tag has 1 to {MAX_TAG_CHARACTERS} printable characters "
            "without commas."
        )
    return clean
