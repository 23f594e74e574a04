"""A database as Django's settings have it."""

from urllib.parse import urlsplit


def database_of(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    backend = "postgresql" if parts.scheme == "postgresql" else "mysql"
    if backend == "mysql":
        import pymysql

        pymysql.version_info = (2, 2, 1, "final", 0)  # Django asks for mysqlclient by its version
        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": f"django.db.backends.{backend}",
        "NAME": parts.path[1:],
        "HOST": str(parts.hostname),
        "PORT": str(parts.port),
        "USER": str(parts.username),
    }
