"""Scrapes of a broker, read by Prometheus' own parser."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from posthouse.testing import AsyncBroker


@dataclass(frozen=True, slots=True)
class Scrape:
    text: str
    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]
    kinds: Mapping[str, str]

    def value(self, name: str, **labels: str) -> float:
        return self.values[name, frozenset(labels.items())]

    def has(self, name: str, **labels: str) -> bool:
        return (name, frozenset(labels.items())) in self.values

    def labels(self, name: str, label: str) -> set[str]:
        """All values of a label of one metric."""
        return {dict(labels)[label] for found, labels in self.values if found == name}


def parsed(text: str) -> Scrape:
    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    kinds: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in kinds, f"{name} is there twice"
        kinds[name] = family.type
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in values, f"{key} is there twice"
            values[key] = sample.value
    return Scrape(text, values, kinds)


async def scrape(broker: AsyncBroker, auth: tuple[str, str] | None = None) -> Scrape:
    async with httpx.AsyncClient(base_url=f"http://{broker.admin}", auth=auth, timeout=60) as http:
        response = await http.get("/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parsed(response.text)
