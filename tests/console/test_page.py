"""The files of the page: what they must not contain, and that their names fit together."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from kit.console_page import console_page

from ottla.console.page_files import contents

SCRIPTS = {name: data.decode() for name, data in contents().items() if name.endswith(".js")}
TEXTS = {name: data.decode() for name, data in contents().items()}
NAMESPACE = "http://www.w3.org/2000/svg"
HTML_SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc|\beval\b|"
    r"new Function"
)


def test_the_page_is_in_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["package-data"]["ottla.console"] == ["page/*"]


def test_there_is_a_page() -> None:
    assert {"index.html", "style.css", "main.js"} <= TEXTS.keys()


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_names_no_other_host(name: str) -> None:
    assert not re.findall(r"(?:https?:|wss?:|['\"(]\s*//)[^\s'\"]*", TEXTS[name].replace(NAMESPACE, ""))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_makes_no_html_from_text(name: str) -> None:
    assert not HTML_SINKS.findall(SCRIPTS[name])


def test_the_document_has_no_code_and_no_style_of_its_own() -> None:
    html = TEXTS["index.html"]
    assert not re.findall(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=", html)


def test_each_id_that_a_script_uses_is_in_the_document() -> None:
    used = {one for text in SCRIPTS.values() for one in re.findall(r'getElementById\("([^"]+)"\)', text)}
    assert used
    assert used <= set(re.findall(r'\sid="([^"]+)"', TEXTS["index.html"]))


def test_each_class_that_a_script_names_has_a_style() -> None:
    styled = set(re.findall(r"\.([a-z][a-z-]*)", TEXTS["style.css"]))
    named = {
        word
        for text in SCRIPTS.values()
        for words in re.findall(r'(?:class|kind): "([^"]*)"', text)
        for word in words.split()
    }
    assert named - styled == set()


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_imports_is_exported(name: str) -> None:
    for names, source in re.findall(r'import \{ ([^}]*) \} from "/([^"]+)";', SCRIPTS[name]):
        exported = set(re.findall(r"export (?:async )?(?:function|const|let|class) (\w+)", SCRIPTS[source]))
        assert {one.strip() for one in names.split(",")} <= exported
    assert SCRIPTS[name].count("import ") == len(re.findall(r'import \{ [^}]* \} from "/', SCRIPTS[name]))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_uses_all_that_it_imports(name: str) -> None:
    for names in re.findall(r"import \{ ([^}]*) \} from", SCRIPTS[name]):
        for one in names.split(","):
            assert len(re.findall(rf"\b{one.strip()}\b", SCRIPTS[name])) > 1


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_has_one_idea(name: str) -> None:
    assert TEXTS[name].count("\n") <= 400
    assert name not in SCRIPTS or TEXTS[name].startswith("// ")


def test_a_live_tail_that_is_refused_for_good_is_not_asked_for_again() -> None:
    loop = SCRIPTS["live.js"].partition("async function follow()")[2].partition("const submit")[0]
    assert loop.index("isRefused = line.final") < loop.index("if (isRefused) {") < loop.index("AGAIN_MS")
    assert "return;" in loop[loop.index("if (isRefused) {") : loop.index("AGAIN_MS")]


async def test_the_files_are_served_with_their_types_and_no_other_path_is() -> None:
    async with console_page("127.0.0.1:1") as page:
        for name, kind in (("style.css", "text/css"), ("main.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
            status, headers, body = await page.raw("GET", f"/{name}")
            assert (status, body) == (200, contents()[name])
            assert headers["content-type"].startswith(kind)
        for path in ("/none.js", "/../clients.py", "/%2e%2e/clients.py", "/..%2fclients.py", "/page/main.js", "//"):
            assert (await page.raw("GET", path))[0] == 404
        assert (await page.raw("POST", "/"))[0] == 405
