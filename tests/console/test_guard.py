"""Who may ask: the token, the host and the origin of a request."""

from __future__ import annotations

import pytest
from kit.console_page import console_page

NOBODY = "127.0.0.1:1"
"""No broker is needed: these requests are refused before one is asked, or fail because there is none."""


async def test_the_page_needs_no_token_and_its_data_do() -> None:
    async with console_page(NOBODY) as page:
        status, _, body = await page.raw("GET", "/", headers={"X-Ottla-Token": ""})
        assert (status, b"Ottla console" in body) == (200, True)
        for token in ("", "x", page.token[:-1], page.token + "x", "\u00e9"):
            status, answer = await page.ask("GET", "status", headers={"X-Ottla-Token": token})
            assert status == 401
            assert "open the URL that `ottla console` has printed" in answer["error"]


async def test_each_console_has_another_token() -> None:
    async with console_page(NOBODY) as one, console_page(NOBODY) as other:
        assert len(one.token) >= 32
        assert one.token != other.token


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9645", "127.0.0.1.evil.example", ""])
async def test_a_name_that_points_here_is_not_answered(host: str) -> None:
    async with console_page(NOBODY) as page:
        for target in ("/", "/main.js", "/api/status"):
            status, _, _ = await page.raw("GET", target, headers={"Host": host})
            assert status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_page_of_another_origin_is_not_answered(headers: dict[str, str]) -> None:
    async with console_page(NOBODY) as page:
        status, _ = await page.ask("GET", "status", headers=headers)
        assert status == 403


async def test_the_consoles_own_page_is_answered() -> None:
    async with console_page(NOBODY) as page:
        own = {"Origin": f"http://127.0.0.1:{page.port}", "Sec-Fetch-Site": "same-origin"}
        status, answer = await page.ask("GET", "status", headers=own)
        assert (status, answer["error"].startswith("no broker answers: ")) == (502, True)


async def test_read_only_refuses_to_write_before_it_asks_a_broker() -> None:
    async with console_page(NOBODY, is_read_only=True) as page:
        status, answer = await page.post("topics/orders/records", {"value": {"text": "tea"}})
        assert (status, answer) == (403, {"error": "the console was started with --read-only"})


async def test_a_form_of_another_page_cannot_write() -> None:
    async with console_page(NOBODY) as page:
        status, _ = await page.ask("POST", "topics/t/records", b"{}", {"Content-Type": "text/plain"})
        assert status == 415


async def test_the_answers_forbid_what_the_page_does_not_need() -> None:
    async with console_page(NOBODY) as page:
        _, headers, _ = await page.raw("GET", "/")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert (headers["cache-control"], "set-cookie" in headers) == ("no-store", False)
