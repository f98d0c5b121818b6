"""Addresses of a database as JDBC and SQLAlchemy write them, and that none of them is quoted with its password."""

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from nunatak.checks import on_mariadb, on_postgres, on_sqlite, sqlite_path
from nunatak.database_url import normal_url
from nunatak.settings import Settings, SettingsError, load, without_password

PLAIN = [
    "",
    "sqlite:///catalog.db",
    "sqlite:////var/lib/nunatak/catalog.db",
    "sqlite:///:memory:",
    "postgresql://me:a%2Fb@db:5432/lake?sslmode=require",
    "postgres://me@a,b:5433/lake",
    "mariadb://me@[::1]:3306/lake?ssl=off",
    "mysql://me@db/lake",
]


@pytest.mark.parametrize("url", PLAIN)
def test_an_address_as_we_write_it_stays_as_it_is(url: str) -> None:
    assert normal_url(url) == url


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("jdbc:sqlite:catalog.db", "sqlite:///catalog.db"),
        ("jdbc:sqlite:/var/catalog.db", "sqlite:////var/catalog.db"),
        ("jdbc:sqlite:file:/var/catalog.db", "sqlite:////var/catalog.db"),
        ("jdbc:sqlite::memory:", "sqlite:///:memory:"),
        ("JDBC:SQLite:catalog.db", "sqlite:///catalog.db"),
        ("sqlite+pysqlite:///catalog.db", "sqlite:///catalog.db"),
        ("sqlite+aiosqlite:////var/catalog.db", "sqlite:////var/catalog.db"),
        ("jdbc:postgresql://db/lake", "postgresql://db/lake"),
        ("jdbc:postgresql://a:5432,b:5433/lake?user=me", "postgresql://me@a:5432,b:5433/lake"),
        ("jdbc:postgresql://db/lake?user=me&password=p%26%40ss", "postgresql://me:p%26%40ss@db/lake"),
        ("jdbc:postgresql://db/lake?password=p&user=me&sslmode=require", "postgresql://me:p@db/lake?sslmode=require"),
        ("jdbc:postgresql:lake", "postgresql://localhost/lake"),
        ("jdbc:postgresql:///lake", "postgresql://localhost/lake"),
        ("jdbc:postgresql:/lake?user=me", "postgresql://me@localhost/lake"),
        ("jdbc:postgresql://db/lake?ssl=true&currentSchema=a", "postgresql://db/lake?sslmode=verify-full&search_path=a"),
        ("jdbc:postgresql://a,b/lake?targetServerType=primary", "postgresql://a,b/lake?target_session_attrs=primary"),
        ("jdbc:postgresql://db/lake?reWriteBatchedInserts=true&loginTimeout=5", "postgresql://db/lake"),
        ("postgresql+psycopg2://me:p%2Fw@db:5432/lake", "postgresql://me:p%2Fw@db:5432/lake"),
        ("postgresql+asyncpg://me@db/lake?ssl=require", "postgresql://me@db/lake?sslmode=require"),
        ("postgres+psycopg://me@db/lake?application_name=x", "postgresql://me@db/lake?application_name=x"),
        ("postgresql+psycopg2:///lake?host=/run/postgresql", "postgresql:///lake?host=/run/postgresql"),
        ("PostgreSQL+pg8000://me@db/lake", "postgresql://me@db/lake"),
        ("jdbc:mariadb://db:3306/lake?user=me&password=p", "mariadb://me:p@db:3306/lake"),
        ("jdbc:mysql://db/lake?user=me&useSSL=false&serverTimezone=UTC", "mysql://me@db/lake?ssl=off"),
        ("jdbc:mariadb://db/lake?user=me&sslMode=verify-full&serverSslCert=/c.pem",
         "mariadb://me@db/lake?ssl=verify&ssl_ca=/c.pem"),
        ("mysql+pymysql://me:p@db/lake?charset=utf8mb4", "mysql://me:p@db/lake"),
        ("mariadb+mariadbconnector://me:p@[::1]/lake", "mariadb://me:p@[::1]/lake"),
    ],
)  # fmt: skip
def test_the_spellings_of_others_are_understood(spelled: str, meant: str) -> None:
    """MISSION: 004-21"""
    assert normal_url(spelled) == meant
    assert normal_url(meant) == meant
    assert load({}, {"NUNATAK_CONFIG": "/dev/null", "NUNATAK_DATABASE_URL": spelled}).database_url == meant


def test_a_password_survives_whatever_it_holds() -> None:
    secret = "p@ss:w/o?r#d&=%;+ ü"
    from_options = normal_url(
        "jdbc:postgresql://db/lake?user=me&password=p%40ss%3Aw%2Fo%3Fr%23d%26%3D%25%3B%2B%20%C3%BC"
    )

    assert unquote(urlsplit(from_options).password or "") == secret


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:h2:mem:SECRET",
        "jdbc:oracle:thin:me/SECRET@db:1521/lake",
        "jdbc:mysql:loadbalance://me:SECRET@a,b/lake",
        "jdbc:mariadb:lake?password=SECRET",
        "jdbc:postgresql://a:b@db/lake?user=me&password=SECRET",
        "jdbc:postgresql://db/lake?user=me&password=SECRET&receiveBufferSize=1",
        "jdbc:postgresql://db/lake?password=SECRET&targetServerType=other",
        "jdbc:postgresql://db/lake?password=SECRET&user",
        "jdbc:postgresql+x://me:SECRET@db/lake",
        "postgresql+psycopg2://me:SECRET/x@db/lake",
        "postgresql+://me:SECRET@db/lake",
        "postgresql+psy;copg://me:SECRET@db/lake",
        "postgresql:me:SECRET@db/lake",
        "postgresql://me:SECRET@\u2100/lake",
        "postgresql+asyncpg://me:SECRET@[::1/lake",
        "mysql+pymysql://db/lake?user=me&password=SECRET;x&unheard=1",
        "mongodb://me:SECRET@db",
        "sqlite:catalog.db",
        "sqlite://",
        "sqlite:///",
        "jdbc:sqlite:",
        "jdbc:sqlite:catalog.db?cipher=SECRET&key=SECRET",
        "sqlite:///catalog.db?mode=ro",
    ],
)
def test_what_cannot_be_understood_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({}, {"NUNATAK_CONFIG": "/dev/null", "NUNATAK_DATABASE_URL": url})

    if "password" in url or "@" in url:
        assert "SECRET" not in str(refused.value)
    assert str(refused.value).startswith("database_url from NUNATAK_DATABASE_URL is ")


def test_a_password_among_the_options_is_not_shown() -> None:
    shown = without_password("jdbc:postgresql://db/lake?user=me&password=a;b&x=1")

    assert dict(parse_qsl(urlsplit(shown.removeprefix("jdbc:")).query)) == {"user": "me", "password": "***", "x": "1"}


def test_each_dialect_is_known_by_its_spelling() -> None:
    def settings(url: str) -> Settings:
        return load({}, {"NUNATAK_CONFIG": "/dev/null", "NUNATAK_DATABASE_URL": url})

    assert on_postgres(settings("jdbc:postgresql://db/lake"))
    assert on_mariadb(settings("jdbc:mysql://me@db/lake"))
    sqlite = settings("jdbc:sqlite:/var/catalog.db")
    assert on_sqlite(sqlite)
    assert sqlite_path(sqlite) == Path("/var/catalog.db")
