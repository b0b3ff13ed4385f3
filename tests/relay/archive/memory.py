"""Objects in memory, which can be copied, and made to fail."""

from __future__ import annotations

from collections.abc import Iterable

from relay.objects.objects import Listed, NoSuchObject


class ObjectsInMemory:
    """A store of objects whose clock is a number."""

    shown = "memory"

    def __init__(self, held: dict[str, tuple[bytes, float]] | None = None) -> None:
        self.held = dict(held or {})
        self.now = 1_000_000.0

    def copy(self) -> ObjectsInMemory:
        """Returns another store with the same objects."""
        return ObjectsInMemory(self.held)

    def listed(self, folder: str = "") -> dict[str, Listed]:
        start = f"{folder}/" if folder else ""
        return {
            name[len(start) :]: Listed(len(content), written)
            for name, (content, written) in self.held.items()
            if name.startswith(start) and "/" not in name[len(start) :]
        }

    def folders(self, folder: str = "") -> list[str]:
        start = f"{folder}/" if folder else ""
        below = [name[len(start) :] for name in self.held if name.startswith(start)]
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def get(self, name: str) -> bytes:
        if name not in self.held:
            raise NoSuchObject(f"there is no {name}")
        return self.held[name][0]

    def get_part(self, name: str, start: int, end: int) -> bytes:
        return self.get(name)[start:end]

    def put(self, name: str, content: bytes) -> None:
        self.held[name] = content, self.now

    def create(self, name: str, content: bytes) -> bool:
        if name in self.held:
            return False
        self.held[name] = content, self.now
        return True

    def delete(self, names: Iterable[str]) -> None:
        for name in list(names):
            self.held.pop(name, None)

    def address(self, name: str) -> str:
        return name
