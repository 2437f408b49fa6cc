"""The proxy's own principal on Amazon MSK: AWS_MSK_IAM, at a stand-in that checks the signature by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import ReadOnlyCredentials
from pydantic import ValidationError

from proxy.brokers.service import BrokerAccess
from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable
from proxy.config import BrokerSasl, Settings
from proxy.security.msk_iam import MskIam, build_payload, region_of
from proxy.security.sasl import SaslError
from tests.support.msk_broker import Iam, stand_in

REGION, KEY_ID, SECRET = "eu-central-1", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SESSION_TOKEN = "IQoJb3JpZ2luX2VjE+/token=="


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Leave nothing of this machine's AWS in the environment; return the path of the profile's file."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path / "credentials"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def iam(**other: Any) -> Iam:
    return Iam(**{"region": REGION, "host": "localhost", "secrets": {KEY_ID: SECRET}, **other})


def access(**sasl: str) -> BrokerAccess:
    settings = Settings.model_validate(
        {
            "rack": "rack-a",
            "brokers": {
                "bootstrap": ["localhost:1"],
                "security_protocol": "SASL_PLAINTEXT",
                "sasl": {"mechanism": "AWS_MSK_IAM", **sasl},
            },
            "redis": {"url": "redis://r:1"},
            "storage": {"url": "file:///w"},
        }
    )
    return BrokerAccess(settings)


async def log_in(broker: Iam, lifetime_ms: int = 0, **sasl: str) -> tuple[list[str], float | None]:
    """Log in twice on one connection; return the keys that were let in, and when to log in again."""
    async with stand_in(broker, lifetime_ms=lifetime_ms) as (port, let_in):
        protocol = BrokerConnection(max_frame_bytes=10_000)
        mine = access(**sasl)
        until_s = await mine.connect_as_service("localhost", port, protocol)
        await mine.authenticate(protocol)
        protocol.close()
        return let_in, until_s


@pytest.mark.usefixtures("keys")
async def test_credentials_of_the_environment_are_accepted_again_and_again() -> None:
    let_in, until_s = await log_in(iam(), aws_region=REGION)
    assert (let_in, until_s) == ([KEY_ID, KEY_ID], None)
    _, until_s = await log_in(iam(), lifetime_ms=900_000, aws_region=REGION)
    assert until_s is not None


@pytest.mark.usefixtures("keys")
async def test_temporary_credentials_bring_their_session_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION_TOKEN)
    broker = iam(session_tokens={KEY_ID: SESSION_TOKEN})
    assert (await log_in(broker, aws_region=REGION))[0] == [KEY_ID, KEY_ID]


@pytest.fixture
def profile(aws: Path) -> None:
    aws.write_text(f"[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\nregion={REGION}\n")


@pytest.mark.usefixtures("profile")
async def test_credentials_and_region_of_a_profile_are_accepted() -> None:
    assert (await log_in(iam()))[0] == [KEY_ID, KEY_ID]


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("broker", "reason"),
    [
        ({"secrets": {KEY_ID: "another"}}, "the signature is wrong"),
        ({"secrets": {}}, "the credential is not one of this region and service"),
        ({"region": "eu-west-1"}, "the credential is not one of this region and service"),
        ({"host": "b-2.example.com"}, "the payload is for another host"),
        ({"session_tokens": {KEY_ID: "t"}}, "the session token is not that of the key"),
    ],
)
async def test_a_rejection_says_what_to_check_and_shows_no_secret(broker: dict[str, Any], reason: str) -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        await log_in(iam(**broker), aws_region=REGION)
    assert reason in str(caught.value)
    assert "check that the AWS role may do kafka-cluster:Connect" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert KEY_ID not in str(caught.value)


@pytest.mark.parametrize(
    ("sasl", "reason"),
    [
        ({"aws_region": REGION}, "no AWS credentials were found; give the proxy an AWS profile or role"),
        ({}, "localhost names no AWS region; set brokers.sasl.aws_region"),
    ],
)
async def test_without_credentials_or_region_the_remedy_is_named(sasl: dict[str, str], reason: str) -> None:
    with pytest.raises(BrokerUnreachable, match=f"brokers.sasl: {reason}"):
        await log_in(iam(), **sasl)


async def test_an_answer_that_is_none_is_rejected() -> None:
    mechanism = MskIam("b-1.example.com", REGION, ReadOnlyCredentials(KEY_ID, SECRET, None))
    assert mechanism.respond(b"") is not None
    with pytest.raises(SaslError, match="is empty"):
        mechanism.respond(b"")


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.demo.abcdef.c2.kafka.us-east-1.amazonaws.com", "us-east-1"),
        ("B-3-public.demo.abcdef.c2.kafka.eu-central-1.amazonaws.com", "eu-central-1"),
        ("boot-xyz.c1.kafka-serverless.ap-south-1.amazonaws.com", "ap-south-1"),
        ("b-1.demo.abcdef.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("b-1.demo.kafka.example.com", ""),
        ("kafka.us-east-1.amazonaws.com.example.com", ""),
    ],
)
def test_the_region_is_in_the_name_of_a_broker(host: str, region: str) -> None:
    assert region_of(host) == region


def test_the_payload_has_the_fields_of_the_java_client() -> None:
    host = "b-1.demo.abcdef.c2.kafka.us-east-1.amazonaws.com"
    payload = json.loads(build_payload(host, "us-east-1", ReadOnlyCredentials(KEY_ID, SECRET, SESSION_TOKEN)))
    assert set(payload) == {
        *("version", "host", "user-agent", "action", "x-amz-algorithm", "x-amz-credential", "x-amz-date"),
        *("x-amz-expires", "x-amz-security-token", "x-amz-signedheaders", "x-amz-signature"),
    }
    assert (payload["host"], payload["x-amz-expires"]) == (host, "900")
    assert payload["x-amz-security-token"] == SESSION_TOKEN


@pytest.mark.parametrize(
    ("sasl", "finding"),
    [
        ({"username": "u", "password": "p"}, "takes its credentials from AWS; remove username and password"),
        ({"token_file": "t"}, "takes no token"),
        ({"mechanism": "PLAIN", "username": "u", "password": "p", "aws_region": REGION}, "aws_region has no effect"),
    ],
)
def test_settings_that_have_no_effect_are_rejected(sasl: dict[str, str], finding: str) -> None:
    with pytest.raises(ValidationError, match=finding):
        BrokerSasl.model_validate({"mechanism": "AWS_MSK_IAM", **sasl})
