"""A daemon with an admin address, and what is read there."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import trio
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Page:
    """An answer: its status, its headers by lower name, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


async def get(url: str, path: str, *headers: str) -> Page:
    """Asks a daemon for a page, over a real socket."""
    at = urlsplit(url)
    assert at.hostname is not None and at.port is not None
    async with await trio.open_tcp_stream(at.hostname, at.port) as stream:
        lines = [f"GET {path} HTTP/1.1", f"Host: {at.netloc}", *headers, "", ""]
        await stream.send_all("\r\n".join(lines).encode())
        return read_page(await all_of(stream))


async def all_of(stream: trio.SocketStream) -> bytes:
    """All that comes until the other side closes."""
    return b"".join([bytes(chunk) async for chunk in stream])


def read_page(said: bytes) -> Page:
    head, _, body = said.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict([line.lower().split(": ", 1) for line in lines])
    return Page(int(first.split()[1]), headers, body)


async def scrape(url: str) -> dict[str, float]:
    """The value of each series, by its name and labels as text: ``name{label="value"}``."""
    page = await get(url, "/metrics")
    assert page.status == 200
    return {
        sample.name + labels_text(sample.labels): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }


def labels_text(labels: dict[str, str]) -> str:
    said = ",".join([f'{name}="{value}"' for name, value in sorted(labels.items())])
    return f"{{{said}}}" if said else ""
