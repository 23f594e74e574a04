"""The documentation knows everything that can be set or run."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from posthouse.model.inert_settings import INERT_SETTINGS
from posthouse.model.topic_config import CONFIG_KEYS, TopicConfig
from posthouse.protocols.admin.metrics.collector import FAMILIES
from posthouse.protocols.admin.metrics.family import Family
from posthouse.settings import Settings

ROOT = Path(__file__).parent.parent
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()


def row(name: str) -> str:
    match = re.search(rf"^\| `{re.escape(name)}` \| .*$", CONFIGURATION, re.MULTILINE)
    assert match, f"docs/configuration.md says nothing of {name}"
    return match[0]


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_every_setting_is_documented(setting: object) -> None:
    name, doc = setting.name, setting.metadata["doc"]  # type: ignore[attr-defined]
    assert doc in row(name)


@pytest.mark.parametrize("name", CONFIG_KEYS)
def test_every_topic_setting_is_documented(name: str) -> None:
    line = row(name)
    assert CONFIG_KEYS[name].doc in line
    assert f"`{TopicConfig().text(name)}`" in line


@pytest.mark.parametrize("name", INERT_SETTINGS)
def test_every_topic_setting_without_effect_is_documented(name: str) -> None:
    line = row(name)
    assert INERT_SETTINGS[name].doc in line
    assert f"`{INERT_SETTINGS[name].default}`" in line


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_metric_is_documented(family: Family) -> None:
    labels = ", ".join(f"`{label}`" for label in family.labels) or "–"
    row = f"| `{family.name}` | {family.kind} | {labels} | {family.meaning} |"
    assert row in METRICS.splitlines(), f"docs/metrics.md needs this row: {row}"


def test_no_other_metric_is_documented() -> None:
    documented = re.findall(r"^\| `((?:posthouse|process)_\w+)` \|", METRICS, re.MULTILINE)
    assert documented == [family.name for family in FAMILIES]


def test_operators_alert_on_metrics_that_exist() -> None:
    page = (ROOT / "docs" / "cluster-operations.md").read_text()
    used = re.findall(r"\b(?:posthouse|process)_[a-z_]+", page)
    exported = {
        family.name + suffix
        for family in FAMILIES
        for suffix in ("", *(("_bucket", "_sum", "_count") if family.kind == "histogram" else ()))
    }
    assert used
    assert set(used) <= exported


PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        other = page.parent / target if target else page
        assert anchor in anchors(other), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"])
def test_tests_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`([\w./-]*\btest_\w+\.py)", page.read_text()):
        assert (ROOT / name).is_file(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"])
def test_test_functions_that_are_named_exist(page: Path) -> None:
    for file, name in re.findall(r"`([\w./-]*\btest_\w+\.py)::(test_\w+)`", page.read_text()):
        assert (ROOT / file).is_file(), f"{page.name} names {file}"
        defined = re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
        assert defined, f"{page.name} names {name} of {file}"


def test_every_overflow_policy_is_shown_by_a_test() -> None:
    """Every row of the tables of policies names a test, or that of the row above."""
    page = (ROOT / "docs" / "flow-control.md").read_text()
    policies = page[page.index("## Overflow policies") : page.index("### Choosing")]
    rows = [line for line in policies.splitlines() if line.startswith("| ")]
    shown = [line for line in rows if not line.startswith("| protocol ")]
    assert len(shown) > 15
    for line in shown:
        assert line.endswith(("` |", "| the same |")), line


def test_the_glossary_names_modules_that_exist() -> None:
    modules = re.findall(r"\| `([a-z_/.]+)` \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert modules
    assert [each for each in modules if not (ROOT / "src" / "posthouse" / each).exists()] == []
