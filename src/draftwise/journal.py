"""Files of long measurements, to which a line is added as each part is done, so that a killed one goes on."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from draftwise.errors import OptionError

_MISSING = "missing"


class Journal:
    """A file of JSON objects, one a line; before them, the conditions under which they were found."""

    def __init__(self, file: Path, conditions: Mapping[str, Any]) -> None:
        """`conditions`: JSON values. Nothing is read or written yet."""
        self.file = file
        self._header = json.dumps({"conditions": dict(conditions)})

    def read(self) -> list[Any]:
        """The objects that an earlier process left, without a line that it was killed in; [] without a file.

        Raises OptionError where the file has other conditions, or cannot be read.
        """
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"{self.file} cannot be read ({error}); give another path.") from None
        self._compare(lines[0] if lines else "")
        objects = []
        for line in lines[1:]:
            try:
                objects.append(json.loads(line))
            except ValueError:
                break
        return objects

    def _compare(self, header: str) -> None:
        wanted = json.loads(self._header)["conditions"]
        try:
            found = dict(json.loads(header)["conditions"])
        except (ValueError, KeyError, TypeError):
            raise OptionError(
                f"{self.file} holds something other than what this command writes; give another path, or "
                "remove it."
            ) from None
        differing = [
            f"{name}: {found.get(name, _MISSING)} there, {wanted.get(name, _MISSING)} here"
            for name in {**found, **wanted}
            if found.get(name, _MISSING) != wanted.get(name, _MISSING)
        ]
        if differing:
            raise OptionError(
                f"{self.file} was begun under other conditions ({'; '.join(differing)}); give another path, "
                "or remove it."
            )

    def rewrite(self, objects: Iterable[Any]) -> None:
        """Begin the file anew with these; raises OptionError where it cannot be written."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            partial = self.file.with_suffix(".partial")
            partial.write_text(f"{self._header}\n{_lines(objects)}", encoding="utf-8")
            partial.replace(self.file)
        except OSError as error:
            raise OptionError(
                f"{self.file} cannot be written ({error.strerror}); give another path."
            ) from None

    def add(self, objects: Iterable[Any]) -> None:
        """Write these after those that the file has."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(_lines(objects))


def digest(value: object) -> str:
    """A short mark that tells values apart by their `repr`, for those too long to be written out."""
    return f"{crc32(repr(value).encode()):08x}"


def _lines(objects: Iterable[Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in objects)
