"""URLs in messages, plans and metadata."""

import pytest

from maintenance_assets.model.urls import shown_url, without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/lake/a@b?c=d", "/lake/a@b?c=d"),
        ("s3://bucket/a@b/c", "s3://bucket/a@b/c"),
        ("hdfs://name:8020/a@b", "hdfs://name:8020/a@b"),
        ("ftp://me:hunter2@host/x", "ftp://host/x"),
        ("ftp://token@host/x", "ftp://host/x"),
        ("s3://KEY:hun/ter2@bucket/x", "s3://bucket/x"),
        ("ftp://me:hun@ter2@host/x", "ftp://host/x"),
        ("https://host/x?sig=hunter2&v=1", "https://host/x?sig=***&v=***"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("ftp://me:hunter2@host/a@b", "ftp://host/a@b"),
        ("abfs://container@account.dfs/x", "abfs://container@account.dfs/x"),
    ],
)
def test_what_is_opened_again_is_the_same_place(url: str, kept: str) -> None:
    assert without_password(url) == kept
