"""kcat as a judge: what a person types into a shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kit.broker import BrokerProcess
from kit.samples import COMPRESSIONS

pytestmark = pytest.mark.kcat


@pytest.fixture(scope="module", autouse=True)
def _kcat() -> None:
    if shutil.which("kcat") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("kcat is not installed and could not be (Debian package kcat): CI must have it")
        pytest.skip("kcat is not on this machine (Debian: apt-get install kcat)")


def kcat(broker: BrokerProcess, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_metadata_names_one_broker_that_is_the_controller(broker: BrokerProcess) -> None:
    answer = json.loads(kcat(broker, "-L", "-J"))
    assert len(answer["brokers"]) == 1
    assert answer["controllerid"] == answer["brokers"][0]["id"]
    assert answer["brokers"][0]["name"] == broker.bootstrap


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_lines_come_back_with_keys_and_headers(broker: BrokerProcess, topic: str, compression: str) -> None:
    lines = "".join(f"k{i}:value {i}\n" for i in range(200))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K:", "-H", "source=kcat", "-z", compression, text=lines)
    got = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %k:%s %h\n")
    assert got == "".join(f"{i} k{i}:value {i} source=kcat\n" for i in range(200))


def test_seek_by_offset_and_by_time(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", text="a\nb\nc\n")
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "1", "-e", "-q") == "b\nc\n"
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q") == "c\n"
    stamp = int(kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "1", "-q", "-f", "%T"))
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", f"s@{stamp}", "-e", "-q").startswith("a\n")
    assert kcat(broker, "-Q", "-t", f"{topic}:0:{stamp}").strip() == f"{topic} [0] offset 0"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in_by_scram(tmp_path: Path, mechanism: str) -> None:
    """kcat 1.7.1 of Debian 12 has librdkafka 2.0.2, whose final message repeats the client's nonce."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": mechanism,
        "ottla.add.scram": f"{mechanism}=[name=alice,password=alices secret]",
    }
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": "alice"}
    options = [f"-X{key}={value}" for key, value in (login | {"sasl.password": "alices secret"}).items()]
    with BrokerProcess(tmp_path, settings) as broker:
        answer = json.loads(kcat(broker, "-L", "-J", *options))
    assert answer["brokers"][0]["name"] == broker.bootstrap
